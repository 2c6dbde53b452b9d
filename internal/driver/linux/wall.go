package linux

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/landlock"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

var landlockABI = sync.OnceValue(landlock.ABI)

// domain says what the second wall admits: reading everywhere, writing only
// where the sandbox is meant to write, and no signal or abstract socket across.
func domain(spec driver.Spec) landlock.Config {
	c := landlock.Config{SignalScope: true, AbstractScope: true}
	if spec.Level == bailey.IsolationContainer {
		// The root itself is the sandbox's to write; what is left is that it
		// makes no device nodes.
		c.Rules = []landlock.Rule{{Path: "/", Access: landlock.Write}, {Path: "/dev", Access: landlock.Devices}}
		return c
	}
	c.Rules = []landlock.Rule{
		{Path: "/", Access: landlock.Read},
		{Path: "/dev", Access: landlock.Devices},
		{Path: "/proc", Access: landlock.Read | landlock.WriteFile},
	}
	for _, p := range spec.Root.Places {
		switch {
		case p.Kind == driver.CoW, p.Kind == driver.Scratch, p.Kind == driver.Bind && !p.ReadOnly:
			c.Rules = append(c.Rules, landlock.Rule{Path: p.Target, Access: landlock.Write, File: p.Kind == driver.Bind && !p.IsDir})
		}
	}
	return c
}

// landlock enters the domain. It is the last thing that has to do with files
// before the program: afterwards nothing can be mounted.
func (b *builder) landlock(spec driver.Spec) {
	b.restrict(landlock.New(landlockABI(), domain(spec)))
}

func (b *builder) restrict(plan *landlock.Plan) {
	if plan == nil {
		return // a kernel without Landlock: the second wall is not there, and Probe says so
	}
	set := b.Do("create Landlock rules", unix.SYS_LANDLOCK_CREATE_RULESET, b.Pointer(unsafe.Pointer(plan.Attr)), spawn.Uint(plan.Size), zero).Result()
	for _, r := range plan.Paths {
		b.Do("open "+r.Path+" for Landlock", unix.SYS_OPENAT, noFD, b.Str(r.Path), spawn.Int(unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC), zero).
			StoreAt(unsafe.Pointer(&r.Attr.Parent_fd))
		b.Do("add a Landlock rule for "+r.Path, unix.SYS_LANDLOCK_ADD_RULE, spawn.From(set), spawn.Int(unix.LANDLOCK_RULE_PATH_BENEATH), b.Pointer(unsafe.Pointer(r.Attr)), zero)
	}
	b.Do("enter the Landlock domain", unix.SYS_LANDLOCK_RESTRICT_SELF, spawn.From(set), spawn.Uint(plan.Flags))
}
