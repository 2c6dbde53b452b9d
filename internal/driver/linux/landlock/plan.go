//go:build linux

package landlock

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Rule gives rights to what lies at and below a path.
type Rule struct {
	// Path is opened without following a link at its end. It is not used when
	// FD is set.
	Path string
	// FD, when not zero, is a descriptor of the folder or file: of a mount for
	// example, attached or not. It stays the caller's.
	FD     int
	Access Access
	// File says that the path is no folder, for plans that are carried out by
	// a child. Create finds out by itself.
	File bool
}

// TCP bounds TCP by port: only those listed may be bound or connected to.
type TCP struct {
	Bind, Connect []uint16
}

// Config says what a domain allows.
type Config struct {
	// Rules give rights to files. Nil leaves files alone; with any rule, even
	// one that gives nothing, all that no rule gives is refused.
	Rules []Rule
	// TCP, when not nil, bounds TCP by port (ABI 4).
	TCP *TCP
	// SignalScope and AbstractScope keep signals, and connections to abstract
	// unix sockets, inside the domain (ABI 6).
	SignalScope, AbstractScope bool
}

// Plan is a Config in the form the kernel takes.
type Plan struct {
	// Attr and Size are what landlock_create_ruleset takes, with no flags.
	Attr *unix.LandlockRulesetAttr
	Size uintptr
	// Paths and Ports are the rules for landlock_add_rule, with types
	// LANDLOCK_RULE_PATH_BENEATH and LANDLOCK_RULE_NET_PORT (RuleNetPort).
	Paths []PathRule
	Ports []*NetPort
	// Flags are those for landlock_restrict_self. From ABI 7 on they keep the
	// domains that a sandbox makes for itself from writing to the host's audit log; the
	// kernel is silent about this one after the first exec anyway.
	Flags uintptr
	// Missing names what the Config asks for and this ABI cannot do.
	Missing []string
}

// PathRule is one rule on files. A child that carries out the plan opens Path
// (O_PATH|O_NOFOLLOW|O_CLOEXEC) and stores the descriptor in Attr.Parent_fd.
// There is room for a whole machine word there.
type PathRule struct {
	Path string
	Attr *unix.LandlockPathBeneathAttr
}

// Storing a word at Parent_fd must stay inside the structure.
var _ [unsafe.Sizeof(unix.LandlockPathBeneathAttr{}) - unsafe.Offsetof(unix.LandlockPathBeneathAttr{}.Parent_fd) - unsafe.Sizeof(uintptr(0))]struct{}

// NetPort is struct landlock_net_port_attr.
type NetPort struct {
	Access uint64
	Port   uint64
}

// RuleNetPort is LANDLOCK_RULE_NET_PORT.
const RuleNetPort = 2

// ABI asks the kernel for its version of Landlock. It is 0 when there is none,
// or when it is turned off at boot.
func ABI() int {
	n, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// New makes the plan for a kernel with the given ABI. It gives nil when nothing
// of the Config can be done there.
//
// Rules for files need ABI 2: the first version forbids moving files between
// folders, which no ordinary work survives.
func New(abi int, c Config) *Plan {
	p := &Plan{Attr: &unix.LandlockRulesetAttr{}}
	missing := func(what string, need int) {
		p.Missing = append(p.Missing, fmt.Sprintf("%s (Landlock ABI %d, the kernel has %d)", what, need, abi))
	}
	switch {
	case c.Rules == nil:
	case abi < 2:
		missing("rules for files", 2)
	default:
		handled := handledBy(abi)
		p.Attr.Handled_access_fs = uint64(handled)
		if abi < 3 {
			missing("truncation", 3)
		}
		if abi < 5 {
			missing("ioctl on devices", 5)
		}
		for _, r := range c.Rules {
			access := r.Access & handled
			if r.File {
				access &= fileOnly
			}
			if access == 0 {
				continue // the kernel takes no empty rule, and it would change nothing
			}
			p.Paths = append(p.Paths, PathRule{r.Path, &unix.LandlockPathBeneathAttr{Allowed_access: uint64(access), Parent_fd: fdOr(r.FD)}})
		}
	}
	if c.TCP != nil {
		if abi < 4 {
			missing("rules for TCP", 4)
		} else {
			p.Attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
			for _, port := range c.TCP.Bind {
				p.Ports = append(p.Ports, &NetPort{unix.LANDLOCK_ACCESS_NET_BIND_TCP, uint64(port)})
			}
			for _, port := range c.TCP.Connect {
				p.Ports = append(p.Ports, &NetPort{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, uint64(port)})
			}
		}
	}
	if c.SignalScope || c.AbstractScope {
		if abi < 6 {
			missing("scopes for signals and abstract sockets", 6)
		} else {
			if c.SignalScope {
				p.Attr.Scoped |= unix.LANDLOCK_SCOPE_SIGNAL
			}
			if c.AbstractScope {
				p.Attr.Scoped |= unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
			}
		}
	}
	if *p.Attr == (unix.LandlockRulesetAttr{}) {
		return nil
	}
	if abi >= 7 {
		p.Flags = unix.LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF
	}
	// The structure has grown with the ABIs; older kernels take no longer one,
	// unless the rest is zero.
	switch {
	case abi >= 6:
		p.Size = unsafe.Offsetof(p.Attr.Scoped) + unsafe.Sizeof(p.Attr.Scoped)
	case abi >= 4:
		p.Size = unsafe.Offsetof(p.Attr.Scoped)
	default:
		p.Size = unsafe.Offsetof(p.Attr.Handled_access_net)
	}
	return p
}

func fdOr(fd int) int32 {
	if fd == 0 {
		return -1
	}
	return int32(fd)
}

// Create makes the ruleset in this process and gives its descriptor
// (close-on-exec), for landlock_restrict_self(fd, Flags) in the child. Paths are
// opened as this process sees them.
func (p *Plan) Create() (int, error) {
	fail := func(step string, err error) (int, error) {
		return -1, bailey.Errorf(bailey.CodeSetupFailed, "make the Landlock rules", "", "%s: %w", step, err)
	}
	r, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(p.Attr)), p.Size, 0)
	if errno != 0 {
		return fail("create the ruleset", errno)
	}
	ruleset := int(r)
	for _, rule := range p.Paths {
		if err := addPath(ruleset, rule); err != nil {
			unix.Close(ruleset)
			name := rule.Path
			if rule.Attr.Parent_fd >= 0 {
				name = fmt.Sprintf("descriptor %d", rule.Attr.Parent_fd)
			}
			return fail(name, err)
		}
	}
	for _, port := range p.Ports {
		if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), RuleNetPort, uintptr(unsafe.Pointer(port)), 0, 0, 0); errno != 0 {
			unix.Close(ruleset)
			return fail(fmt.Sprintf("port %d", port.Port), errno)
		}
	}
	return ruleset, nil
}

func addPath(ruleset int, rule PathRule) error {
	attr := *rule.Attr
	if attr.Parent_fd < 0 {
		fd, err := unix.Open(rule.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		attr.Parent_fd = int32(fd)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(attr.Parent_fd), &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		// The rule would bind to the link, which nothing is below.
		return unix.ELOOP
	default:
		if attr.Allowed_access &= uint64(fileOnly); attr.Allowed_access == 0 {
			return nil
		}
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
