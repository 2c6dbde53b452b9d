//go:build linux

package landlock

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

func TestPlanByABI(t *testing.T) {
	c := Config{
		Rules:       []Rule{{Path: "/", Access: Read}, {Path: "/dev", Access: Devices}, {Path: "/f", Access: Write, File: true}},
		TCP:         &TCP{Bind: []uint16{80}, Connect: []uint16{443, 8443}},
		SignalScope: true, AbstractScope: true,
	}
	tests := []struct {
		abi          int
		size         uintptr
		refer, trunc bool
		ioctl        bool
		ports        int
		scoped       uint64
		missing      string
	}{
		{2, 8, true, false, false, 0, 0, "truncation ioctl TCP scopes"},
		{3, 8, true, true, false, 0, 0, "ioctl TCP scopes"},
		{4, 16, true, true, false, 3, 0, "ioctl scopes"},
		{5, 16, true, true, true, 3, 0, "scopes"},
		{6, 24, true, true, true, 3, 3, ""},
		{7, 24, true, true, true, 3, 3, ""},
		{99, 24, true, true, true, 3, 3, ""},
	}
	for _, tt := range tests {
		p := New(tt.abi, c)
		if p == nil {
			t.Fatalf("ABI %d: no plan", tt.abi)
		}
		fs := Access(p.Attr.Handled_access_fs)
		if p.Size != tt.size || fs&Refer != 0 != tt.refer || fs&Truncate != 0 != tt.trunc || fs&IoctlDev != 0 != tt.ioctl ||
			len(p.Ports) != tt.ports || p.Attr.Scoped != tt.scoped {
			t.Errorf("ABI %d: %+v, size %d, %d ports", tt.abi, p.Attr, p.Size, len(p.Ports))
		}
		if (p.Flags != 0) != (tt.abi >= 7) {
			t.Errorf("ABI %d: flags %#x", tt.abi, p.Flags)
		}
		if len(p.Missing) != len(strings.Fields(tt.missing)) {
			t.Errorf("ABI %d: missing %q", tt.abi, p.Missing)
		}
		for _, word := range strings.Fields(tt.missing) {
			if !strings.Contains(strings.Join(p.Missing, ";"), word) {
				t.Errorf("ABI %d: %s is not said to be missing: %q", tt.abi, word, p.Missing)
			}
		}
		for _, r := range p.Paths {
			if extra := Access(r.Attr.Allowed_access) &^ fs; extra != 0 {
				t.Errorf("ABI %d: %s has rights %#x that are not handled, which the kernel refuses", tt.abi, r.Path, extra)
			}
			if Access(r.Attr.Allowed_access)&(MakeChar|MakeBlock) != 0 {
				t.Errorf("%s may make device nodes", r.Path)
			}
		}
		if got := Access(p.Paths[2].Attr.Allowed_access); got&^fileOnly != 0 || got&WriteFile == 0 {
			t.Errorf("ABI %d: a file has rights %#x", tt.abi, got)
		}
	}
	for _, abi := range []int{0, 1} {
		if p := New(abi, c); p != nil {
			t.Errorf("ABI %d: %+v", abi, p)
		}
	}
	if p := New(7, Config{}); p != nil {
		t.Errorf("nothing asked: %+v", p)
	}
	if p := New(7, Config{Rules: []Rule{}}); p == nil || p.Attr.Handled_access_fs == 0 {
		t.Errorf("no rule must mean that nothing is allowed: %+v", p)
	}
}

// TestRoomForADescriptor is about children that store a whole word.
func TestRoomForADescriptor(t *testing.T) {
	p := New(7, Config{Rules: []Rule{{Path: "/", Access: Read}}})
	attr := p.Paths[0].Attr
	if attr.Parent_fd != -1 {
		t.Errorf("descriptor %d before it is open", attr.Parent_fd)
	}
	*(*uintptr)(unsafe.Pointer(&attr.Parent_fd)) = 5
	if attr.Parent_fd != 5 || attr.Allowed_access != uint64(Read) {
		t.Errorf("%+v", attr)
	}
}

func TestCreateErrors(t *testing.T) {
	needABI(t, 2)
	dir := t.TempDir()
	if err := os.Symlink("/", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{dir + "/absent": unix.ENOENT, dir + "/link": unix.ELOOP} {
		fd, err := New(ABI(), Config{Rules: []Rule{{Path: name, Access: Read}}}).Create()
		if fd >= 0 || bailey.CodeOf(err) != bailey.CodeSetupFailed || !strings.Contains(err.Error(), want.(unix.Errno).Error()) {
			t.Errorf("%s: %d, %v", name, fd, err)
		}
	}
}

func needABI(t testing.TB, abi int) {
	t.Helper()
	if n := ABI(); n < abi {
		t.Skipf("needs host landlock-%d: this kernel has %d", abi, n)
	}
}

func BenchmarkCreate(b *testing.B) {
	needABI(b, 2)
	rules := []Rule{{Path: "/", Access: Read}, {Path: "/tmp", Access: Write}, {Path: "/dev", Access: Devices}, {Path: "/var", Access: Write}, {Path: "/root", Access: Write}}
	for b.Loop() {
		fd, err := New(7, Config{Rules: rules, SignalScope: true, AbstractScope: true}).Create()
		if err != nil {
			b.Fatal(err)
		}
		unix.Close(fd)
	}
}
