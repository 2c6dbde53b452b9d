package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRealHost examines this machine as whoever runs the test, and asks a
// second witness about what it found.
func TestRealHost(t *testing.T) {
	r := Check(context.Background(), Host("test", t.TempDir()))
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	t.Log(b.String())
	for _, res := range r.Results {
		if res.Title == "" || res.Value == "" {
			t.Errorf("result %+v has no title or no value", res)
		}
		if res.Status == Missing && (res.Why == "" || len(res.Fix) == 0) {
			t.Errorf("result %+v does not say why and what to do", res)
		}
	}
	if unshare, err := exec.LookPath("unshare"); err == nil {
		err := exec.Command(unshare, "--user", "--map-current-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "true").Run()
		if got := r.Result("user-namespaces"); (got.Status == OK) != (err == nil) {
			t.Errorf("user namespaces are %+v, but unshare says %v", got, err)
		}
	}
	fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	if got := r.Result("kvm"); (got.Status == OK) != (err == nil) {
		t.Errorf("KVM is %+v, but opening it gives %v", got, err)
	}
	if got := r.Result("kernel").Value; got == "" || !strings.Contains(readAll(t, "/proc/version"), got) {
		t.Errorf("the kernel is %q", got)
	}
}

func readAll(t *testing.T, p string) string {
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// othersFolder is the temporary folder of a test, as package testing names it.
var othersFolder = regexp.MustCompile(`/Test[A-Z]\w*\d+/\d{3}/`)

// TestLeavesNothing counts what an examination could leave behind.
func TestLeavesNothing(t *testing.T) {
	home := t.TempDir()
	count := func() (s string) {
		for _, p := range []string{"/proc/self/fd", home} {
			entries, err := os.ReadDir(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				s += e.Name() + " "
			}
		}
		for line := range strings.Lines(readAll(t, "/proc/self/mountinfo")) {
			// What other tests of the suite mount meanwhile lies in their own folders.
			if !othersFolder.MatchString(line) || strings.Contains(line, home) {
				s += line
			}
		}
		return s
	}
	Check(context.Background(), Host("test", home)) // what the runtime opens once is open now
	before := count()
	Check(context.Background(), Host("test", home))
	if after := count(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	var status unix.WaitStatus
	if pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
	if _, err := os.Stat(filepath.Join(home, "sub")); err == nil {
		t.Error("the data folder was made")
	}
	Check(context.Background(), Host("test", filepath.Join(home, "sub", "deeper")))
	if _, err := os.Stat(filepath.Join(home, "sub")); err == nil {
		t.Error("the data folder was made")
	}
}

// asOrdinary is set in a copy of this test that runs as an ordinary user.
const asOrdinary = "BAILEY_TEST_DOCTOR_AS_ORDINARY"

// TestRealHostAsOrdinaryUser runs this test program again as nobody.
func TestRealHostAsOrdinaryUser(t *testing.T) {
	if os.Getenv(asOrdinary) != "" {
		home := os.Getenv(asOrdinary)
		if err := Check(context.Background(), Host("test", home)).WriteJSON(os.Stdout); err != nil {
			t.Fatal(err)
		}
		os.Exit(0) // nothing but the document on stdout
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: starting a program as another user; TestRealHost examined the host as this one")
	}
	dir, err := os.MkdirTemp("", "doctor")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "doctor.test")
	copyProgram(t, self)
	cmd := exec.Command(self, "-test.run=^TestRealHostAsOrdinaryUser$")
	cmd.Dir = dir
	cmd.Env = []string{asOrdinary + "=" + home, "PATH=/usr/bin:/bin", "USER=nobody", "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var r Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	if r.Root {
		t.Error("the report says root")
	}
	if kvm := r.Result("kvm"); kvm.Status == OK {
		if fi, err := os.Stat("/dev/kvm"); err != nil || fi.Mode().Perm()&0o006 != 0o006 {
			t.Errorf("nobody cannot have opened /dev/kvm: %+v", kvm)
		}
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) != 0 {
		t.Errorf("in the data folder is %v, %v", entries, err)
	}
	if ns := r.Result("user-namespaces"); ns.Status == OK && r.Result("overlay").Status == Unknown {
		t.Errorf("namespaces work, but the overlay was not tried: %+v", r.Result("overlay"))
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
