package bench

import (
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
