package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is said to be equal has to be asked for.
func TestBwrapIsAskedForAllItCan(t *testing.T) {
	args := bwrapArgs("/usr/bin/bwrap", "/fresh", "/work", "/home/me", "true", "x")
	line := strings.Join(args, " ")
	for _, want := range []string{"--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
		"--cap-drop ALL", "--seccomp 3", "--bind /fresh /work", "--ro-bind /usr /usr", "--proc /proc", "--dev /dev", "--tmpfs /tmp"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %s", want, line)
		}
	}
	if !slices.Equal(args[len(args)-2:], []string{"true", "x"}) {
		t.Errorf("the command is not at the end of %s", line)
	}
}

func TestBundle(t *testing.T) {
	dir := t.TempDir()
	if err := bundle(dir, []string{"/bin/echo", "hi"}, "/"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Process struct {
			Args            []string
			NoNewPrivileges bool
		}
		Linux struct {
			Namespaces []struct{ Type string }
			Resources  struct {
				Memory struct{ Limit int64 }
				Pids   struct{ Limit int64 }
			}
			Seccomp struct {
				DefaultAction string
				Syscalls      []struct{ Names []string }
			}
		}
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, s := range c.Linux.Seccomp.Syscalls {
		names += len(s.Names)
	}
	if len(c.Linux.Namespaces) != 7 || !c.Process.NoNewPrivileges || c.Linux.Resources.Memory.Limit != limits.Memory ||
		c.Linux.Resources.Pids.Limit != limits.Pids || c.Linux.Seccomp.DefaultAction != "SCMP_ACT_ERRNO" || names < 300 || c.Process.Args[1] != "hi" {
		t.Errorf("%d names in %s", names, text)
	}
}

// The filter is what the kernel reads: eight bytes for an instruction.
func TestFilterFile(t *testing.T) {
	f, err := filterFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size()%8 != 0 || fi.Size() < 800 {
		t.Error(fi.Size(), err)
	}
}
