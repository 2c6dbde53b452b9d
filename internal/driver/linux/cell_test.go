package linux

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

func init() { insides["cell"] = insideCell }

// insideCell tries what a program that builds a sandbox has to do, and what it must not.
func insideCell([]string) error {
	var list []string
	say := func(what string, err error) {
		if err != nil {
			what += ": " + err.Error()
		}
		list = append(list, what)
	}
	say(fmt.Sprint("user ", os.Getuid()), nil)
	ifaces, err := net.Interfaces()
	for _, i := range ifaces {
		say("card "+i.Name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	say("packets", err)
	unix.Close(fd)
	say("remount", unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	say("write", os.WriteFile("/usr/bailey-was-here", nil, 0o644))
	say("namespaces", unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_NEWIPC))
	say("slave", unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""))
	say("mount", unix.Mount("x", "/tmp", "tmpfs", 0, ""))
	say("remount", unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	say("modules", unix.DeleteModule("nothing", 0))
	_, err = os.Open("/etc/shadow")
	say("a file of the host", err)
	fmt.Println(strings.Join(list, "\n"))
	return nil
}

// cellSpec is a cell whose command is this test program.
func cellSpec(t *testing.T, name string) driver.Spec {
	t.Helper()
	testneeds.Host(t, testneeds.UserNS)
	spec := insideSpec(t, name)
	spec.Level = bailey.IsolationContainer
	spec.User.UID, spec.User.GID = 0, 0
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Dir, Target: "/tmp", Mode: 0o755})
	spec.Cell = &driver.Cell{}
	return spec
}

func TestCell(t *testing.T) {
	spec := cellSpec(t, "cell")
	spec.Outlet, spec.Cell.Link = true, true
	out, end := run(t, New(state(t)), spec)
	want := "user 0\ncard lo\ncard eth0\npackets\nremount: operation not permitted\nwrite: open /usr/bailey-was-here: read-only file system\nnamespaces\nslave\nmount\nremount: operation not permitted\n" +
		"modules: operation not permitted\na file of the host: open /etc/shadow: no such file or directory\n"
	if os.Geteuid() != 0 {
		// The mounts belong to the user namespace that the cell's root is in.
		want = strings.NewReplacer("remount: operation not permitted", "remount", "read-only file system", "permission denied").Replace(want)
	}
	if out != want || end.ExitCode != 0 {
		t.Errorf("%s\nwant\n%s%+v", out, want, end)
	}
}

// A container that is no cell gets none of it.
func TestNoCell(t *testing.T) {
	spec := cellSpec(t, "cell")
	spec.Outlet, spec.Cell = true, nil
	out, _ := run(t, New(state(t)), spec)
	for _, never := range []string{"eth0", "packets\n", "namespaces\n", "mount\n"} {
		if strings.Contains(out, never) {
			t.Errorf("%q in %s", never, out)
		}
	}
}

func TestCellsThatCannotBe(t *testing.T) {
	for what, change := range map[string]func(*driver.Spec){
		"a process":              func(s *driver.Spec) { s.Level = bailey.IsolationProcess },
		"a card without a gate":  func(s *driver.Spec) { s.Cell.Link = true },
		"a NUL in its arguments": func(s *driver.Spec) { s.Cell.Args = []string{"a\x00b"} },
	} {
		spec := cellSpec(t, "cell")
		change(&spec)
		_, err := New(state(t)).Create(t.Context(), spec)
		var be *bailey.Error
		if !errors.As(err, &be) || be.Code != bailey.CodeUsage {
			t.Errorf("%s: %v", what, err)
		}
	}
}
