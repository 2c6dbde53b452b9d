//go:build linux

package seccomp

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/seccomp/internal/profile"
)

func TestGeneratedTablesAreCurrent(t *testing.T) {
	for _, arch := range profile.Arches {
		want, err := profile.Generate(arch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(profile.FileName(arch))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate in this folder", profile.FileName(arch))
		}
	}
}

// call is struct seccomp_data.
type call struct {
	number int32
	arch   uint32
	args   [6]uint64
}

// run interprets a program as the kernel does, and fails the test on anything
// the kernel would refuse to load. It knows the instructions that seccomp's
// cache of constant answers also knows, on purpose: with others in it, the
// filter would run for every single call.
func run(t testing.TB, prog []unix.SockFilter, c call) uint32 {
	t.Helper()
	word := func(off uint32) uint32 {
		switch {
		case off == 0:
			return uint32(c.number)
		case off == 4:
			return c.arch
		case off >= 16 && off < 64 && off%8 == 0:
			return uint32(c.args[(off-16)/8])
		case off >= 16 && off < 64 && off%4 == 0:
			return uint32(c.args[(off-16)/8] >> 32)
		}
		t.Fatalf("load from offset %d", off)
		return 0
	}
	var a uint32
	for pc := 0; pc < len(prog); pc++ {
		i := prog[pc]
		cond := func(ok bool) {
			if ok {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = word(i.K)
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(i.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			cond(a == i.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			cond(a >= i.K)
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("instruction %d has code %#x", pc, i.Code)
		}
	}
	t.Fatal("the program runs off its end")
	return 0
}

func mustFilter(t testing.TB, o Options) []unix.SockFilter {
	t.Helper()
	prog, err := Filter(o)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

const (
	doAllow  = unix.SECCOMP_RET_ALLOW
	doEPERM  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	doENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	doKill   = unix.SECCOMP_RET_KILL_PROCESS
)

// mobyAnswer is what moby's profile itself says to a call, as runc applies it.
func mobyAnswer(rules []profile.Rule, name string, args [6]uint64) uint32 {
	for _, r := range rules {
		if !slices.Contains(r.Names, name) {
			continue
		}
		hit := true
		for _, a := range r.Args {
			v := args[a.Index]
			switch a.Op {
			case specs.OpEqualTo:
				hit = hit && v == a.Value
			case specs.OpLessThan:
				hit = hit && v < a.Value
			case specs.OpMaskedEqual:
				hit = hit && v&a.Value == a.ValueTwo
			default:
				panic(a.Op)
			}
		}
		if hit {
			if r.Action == specs.ActErrno {
				return unix.SECCOMP_RET_ERRNO | uint32(r.Errno)
			}
			return doAllow
		}
	}
	return doEPERM
}

// TestEveryCallAgainstMoby walks through all numbers: what is answered
// otherwise than by moby must be named here.
func TestEveryCallAgainstMoby(t *testing.T) {
	numbers, err := profile.Numbers(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	names := map[int]string{}
	for name, n := range numbers {
		names[n] = name
	}
	rules := profile.Rules(runtime.GOARCH)
	prog := mustFilter(t, Options{})
	narrower := []string{"process_vm_readv", "process_vm_writev", "memfd_secret", "socketpair"}
	for n := range 2048 {
		got := run(t, prog, call{number: int32(n), arch: auditArch, args: [6]uint64{0x7fffffff}})
		name, inUse := names[n]
		if n > newest || !inUse {
			if got != doENOSYS {
				t.Errorf("number %d (%s), unknown to the profile, is answered %#x", n, name, got)
			}
			continue
		}
		want := mobyAnswer(rules, name, [6]uint64{0x7fffffff})
		if slices.Contains(narrower, name) {
			if want != doAllow {
				t.Errorf("%s is no longer allowed by moby; drop it from this list", name)
			}
			want = doEPERM
		}
		if got != want {
			t.Errorf("%s (%d) is answered %#x, want %#x", name, n, got, want)
		}
	}
}

// TestNeverWiderThanMoby tries arguments of the conditional calls.
func TestNeverWiderThanMoby(t *testing.T) {
	rules := profile.Rules(runtime.GOARCH)
	prog := mustFilter(t, Options{})
	for _, c := range []struct {
		name   string
		number int32
	}{{"socket", unix.SYS_SOCKET}, {"personality", unix.SYS_PERSONALITY}, {"clone", unix.SYS_CLONE}, {"ioctl", unix.SYS_IOCTL}} {
		for v := range uint64(1 << 13) {
			for _, args := range [][6]uint64{{v}, {v << 10}, {v << 19}, {0, v}} {
				if c.name == "personality" && args[0] == addrNoRandomize {
					continue // the one addition, see the package text
				}
				got := run(t, prog, call{number: c.number, arch: auditArch, args: args})
				if got == doAllow && mobyAnswer(rules, c.name, args) != doAllow {
					t.Fatalf("%s%x is allowed, which moby refuses", c.name, args)
				}
			}
		}
	}
}

func TestArguments(t *testing.T) {
	const high = 1 << 32
	tests := []struct {
		name   string
		number int32
		args   [6]uint64
		want   uint32
	}{
		{"unix socket", unix.SYS_SOCKET, [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, doAllow},
		{"inet socket", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, doAllow},
		{"inet6 socket", unix.SYS_SOCKET, [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM}, doAllow},
		{"multipath tcp", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, doAllow},
		{"smc by inet", unix.SYS_SOCKET, [6]uint64{unix.AF_INET6, unix.SOCK_STREAM, 256}, doEPERM},
		{"smc by inet, high bit", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, high | 256}, doEPERM},
		{"route netlink", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, doAllow},
		{"audit netlink", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, doEPERM},
		{"audit netlink, high bit", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, high | unix.NETLINK_AUDIT}, doEPERM},
		{"netfilter netlink", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, doEPERM},
		{"vsock", unix.SYS_SOCKET, [6]uint64{unix.AF_VSOCK}, doEPERM},
		{"vsock, high bit", unix.SYS_SOCKET, [6]uint64{high | unix.AF_VSOCK}, doEPERM},
		{"alg", unix.SYS_SOCKET, [6]uint64{unix.AF_ALG}, doEPERM},
		{"packet", unix.SYS_SOCKET, [6]uint64{unix.AF_PACKET}, doEPERM},
		{"unspec", unix.SYS_SOCKET, [6]uint64{unix.AF_UNSPEC}, doEPERM},
		{"pair of unix", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_UNIX}, doAllow},
		{"pair of alg", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_ALG}, doEPERM},
		{"fork", unix.SYS_CLONE, [6]uint64{uint64(unix.SIGCHLD)}, doAllow},
		{"thread", unix.SYS_CLONE, [6]uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID}, doAllow},
		{"new user namespace", unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, doEPERM},
		{"new mount namespace", unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWNS}, doEPERM},
		{"new cgroup namespace", unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWCGROUP}, doEPERM},
		{"new net namespace, high bit", unix.SYS_CLONE, [6]uint64{high | unix.CLONE_NEWNET}, doEPERM},
		{"clone3", unix.SYS_CLONE3, [6]uint64{}, doENOSYS},
		{"TIOCSTI", unix.SYS_IOCTL, [6]uint64{0, 0x5412}, doEPERM},
		{"TIOCSTI, high bit", unix.SYS_IOCTL, [6]uint64{0, 0x100005412}, doEPERM},
		{"TIOCLINUX", unix.SYS_IOCTL, [6]uint64{0, 0x541c}, doEPERM},
		{"TIOCLINUX, high bits", unix.SYS_IOCTL, [6]uint64{0, 0xffffffff0000541c}, doEPERM},
		{"TIOCGWINSZ", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCGWINSZ}, doAllow},
		{"TIOCSTI as a descriptor", unix.SYS_IOCTL, [6]uint64{0x5412, unix.TCGETS}, doAllow},
		{"personality question", unix.SYS_PERSONALITY, [6]uint64{0xffffffff}, doAllow},
		{"no randomisation", unix.SYS_PERSONALITY, [6]uint64{0x40000}, doAllow},
		{"READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, [6]uint64{0x400000}, doEPERM},
		{"SVR4", unix.SYS_PERSONALITY, [6]uint64{1}, doEPERM},
		{"chroot", unix.SYS_CHROOT, [6]uint64{}, doAllow},
		{"ptrace", unix.SYS_PTRACE, [6]uint64{}, doAllow},
		{"taken out by a tracer", -1, [6]uint64{}, doAllow},
	}
	prog := mustFilter(t, Options{})
	for _, tt := range tests {
		if got := run(t, prog, call{number: tt.number, arch: auditArch, args: tt.args}); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

// TestNewNamespaceFlagsOneByOne makes sure that no flag of clone slips through.
func TestNewNamespaceFlagsOneByOne(t *testing.T) {
	prog := mustFilter(t, Options{})
	const flags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	for bit := uint64(1); bit < 1<<32; bit <<= 1 {
		want := uint32(doAllow)
		if flags&bit != 0 {
			want = doEPERM
		}
		if got := run(t, prog, call{number: unix.SYS_CLONE, arch: auditArch, args: [6]uint64{bit}}); got != want {
			t.Errorf("clone(%#x): %#x, want %#x", bit, got, want)
		}
	}
}

func TestOtherEntries(t *testing.T) {
	prog := mustFilter(t, Options{})
	for _, arch := range []uint32{0, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_PPC64, 0xffffffff} {
		if got := run(t, prog, call{number: unix.SYS_GETPID, arch: arch}); got != doKill {
			t.Errorf("architecture %#x: %#x", arch, got)
		}
		if got := run(t, mustFilter(t, Options{Omit: []string{"other-abi"}}), call{number: unix.SYS_GETPID, arch: arch}); got != doAllow {
			t.Errorf("architecture %#x in a control run: %#x", arch, got)
		}
	}
	for n := range int32(600) {
		want := uint32(doENOSYS)
		if hasX32 {
			want = doKill
		}
		if got := run(t, prog, call{number: n | x32Bit, arch: auditArch}); got != want {
			t.Fatalf("x32 number %d: %#x, want %#x", n, got, want)
		}
		if hasX32 {
			if got := run(t, mustFilter(t, Options{Omit: []string{"x32"}}), call{number: n | x32Bit, arch: auditArch}); got != doAllow {
				t.Fatalf("x32 number %d in a control run: %#x", n, got)
			}
		}
	}
}

// TestOmit checks that each name turns off its own protection and no other.
func TestOmit(t *testing.T) {
	answers := func(o Options) map[string]uint32 {
		prog := mustFilter(t, o)
		out := map[string]uint32{}
		for _, p := range protections {
			for _, n := range p.calls {
				if int(n) <= newest {
					out[p.name] |= run(t, prog, call{number: int32(n), arch: auditArch})
				}
			}
		}
		for name, c := range map[string]call{
			"userns":          {number: unix.SYS_CLONE, args: [6]uint64{unix.CLONE_NEWUSER}},
			"socket-families": {number: unix.SYS_SOCKET, args: [6]uint64{unix.AF_ALG}},
			"tiocsti":         {number: unix.SYS_IOCTL, args: [6]uint64{0, 0x5412}},
			"personality":     {number: unix.SYS_PERSONALITY, args: [6]uint64{1}},
			"x32":             {number: unix.SYS_GETPID | x32Bit},
			"other-abi":       {arch: 1},
		} {
			if c.arch == 0 {
				c.arch = auditArch
			}
			out[name] |= run(t, prog, c)
		}
		return out
	}
	usual := answers(Options{})
	for _, p := range Protections() {
		if p.What == "" {
			t.Errorf("%s has no text", p.Name)
		}
		if p.Name == "x32" && !hasX32 || p.Name == "ioport" && len(ioportCalls) == 0 {
			continue
		}
		got := answers(Options{Omit: []string{p.Name}})
		for name, was := range usual {
			if was == doAllow {
				t.Errorf("%s does not refuse what it says", name)
			}
			want := was
			if name == p.Name {
				want = doAllow
			}
			if got[name] != want {
				t.Errorf("without %s, %s is answered %#x, want %#x", p.Name, name, got[name], want)
			}
		}
	}
	if _, err := Filter(Options{Omit: []string{"tiocst"}}); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("an unknown name gives %v", err)
	}
}

func TestNestedUserNS(t *testing.T) {
	prog := mustFilter(t, Options{NestedUserNS: true})
	for _, n := range []int32{unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_MOUNT, unix.SYS_PIVOT_ROOT, unix.SYS_SETHOSTNAME} {
		if got := run(t, prog, call{number: n, arch: auditArch, args: [6]uint64{unix.CLONE_NEWUSER}}); got != doAllow {
			t.Errorf("number %d: %#x", n, got)
		}
	}
	for _, n := range []int32{unix.SYS_BPF, unix.SYS_KEYCTL, unix.SYS_IO_URING_SETUP, unix.SYS_REBOOT} {
		if got := run(t, prog, call{number: n, arch: auditArch}); got != doEPERM {
			t.Errorf("number %d: %#x", n, got)
		}
	}
}

func TestNoSetUID(t *testing.T) {
	type args = [6]uint64
	usual, prog := mustFilter(t, Options{}), mustFilter(t, Options{NoSetUID: true})
	for _, tc := range []struct {
		n      int32
		args   args
		refuse bool
	}{
		{unix.SYS_FCHMOD, args{3, 0o755}, false},
		{unix.SYS_FCHMOD, args{3, 0o4755}, true},
		{unix.SYS_FCHMOD, args{3, 0xffffffff00000000 | 0o4755}, true},
		{unix.SYS_FCHMOD, args{3, 0o2755}, false}, // folders hand down their group so
		{unix.SYS_FCHMODAT, args{3, 0, 0o644}, false},
		{unix.SYS_FCHMODAT, args{3, 0, 0o104755}, true},
		{unix.SYS_FCHMODAT2, args{3, 0, 0o4755}, true},
		{unix.SYS_MKNODAT, args{3, 0, unix.S_IFREG | 0o4755}, true},
		{unix.SYS_MKNODAT, args{3, 0, unix.S_IFIFO | 0o644}, false},
		{unix.SYS_OPENAT, args{3, 0, unix.O_WRONLY | unix.O_CREAT, 0o4755}, true},
		{unix.SYS_OPENAT, args{3, 0, unix.O_WRONLY | unix.O_TMPFILE, 0o4755}, true},
		{unix.SYS_OPENAT, args{3, 0, unix.O_WRONLY | unix.O_CREAT, 0o755}, false},
		{unix.SYS_OPENAT, args{3, 0, unix.O_DIRECTORY, 0xffff}, false}, // no file is made, the mode is noise
	} {
		c := call{number: tc.n, arch: auditArch, args: tc.args}
		want := uint32(doAllow)
		if tc.refuse {
			want = doEPERM
		}
		if got := run(t, prog, c); got != want {
			t.Errorf("number %d with %#o: %#x, want %#x", tc.n, tc.args, got, want)
		}
		if got := run(t, usual, c); got != doAllow {
			t.Errorf("without the rule, number %d with %#o: %#x", tc.n, tc.args, got)
		}
	}
	c := call{number: unix.SYS_OPENAT2, arch: auditArch}
	if got := run(t, prog, c); got != returns[absent] {
		t.Errorf("openat2: %#x", got)
	}
	if got := run(t, mustFilter(t, Options{NoSetUID: true, KeepOpenat2: true}), c); got != doAllow {
		t.Errorf("openat2, kept: %#x", got)
	}
}

func TestLength(t *testing.T) {
	// Loading costs in proportion to this. It is no law, but a jump up is a
	// fault of the compiler.
	if n := len(mustFilter(t, Options{})); n > 200 {
		t.Errorf("the filter has %d instructions", n)
	} else {
		t.Logf("%d instructions", n)
	}
}

func BenchmarkFilter(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Filter(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
