package linux

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// subIDs are an ordinary user's subordinate ids (subuid(5)), and the set-uid
// programs of shadow-utils that map them: the kernel lets a user map only the
// own id.
type subIDs struct {
	uids, gids           span
	newuidmap, newgidmap string
}

// minSubIDs is how many ids there have to be for a system to work inside: its
// services have theirs below 1000.
const minSubIDs = 1000

// subordinates gives the caller's subordinate ids, if there are any to use.
func subordinates() (subIDs, bool) {
	var s subIDs
	var err error
	if !hostIDs() {
		return s, false // the files speak of ids that do not exist here
	}
	if s.newuidmap, err = mapper("newuidmap"); err != nil {
		return s, false
	}
	if s.newgidmap, err = mapper("newgidmap"); err != nil {
		return s, false
	}
	s.uids = ownSpan("/etc/subuid")
	s.gids = ownSpan("/etc/subgid")
	return s, s.uids.count >= minSubIDs && s.gids.count >= minSubIDs
}

// hostIDs says whether this process is in a user namespace in which all ids
// exist, as the host's own does.
var hostIDs = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(b))
	return err == nil && len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
})

func mapper(name string) (string, error) {
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin"} {
		p := filepath.Join(dir, name)
		if unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return exec.LookPath(name)
}

// ownSpan gives the caller's largest range in a file of subuid(5)'s form, in
// which a user stands by name or by number.
func ownSpan(file string) (best span) {
	names := []string{strconv.Itoa(os.Geteuid())}
	if u, err := user.Current(); err == nil {
		names = append(names, u.Username)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return span{}
	}
	for line := range strings.Lines(string(text)) {
		for _, name := range names {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
				if s, ok := parseSpan(rest); ok && s.count > best.count {
					best = s
				}
			}
		}
	}
	return best
}

// lines gives the map in which inside is the caller's own id and all others
// come from the subordinate range.
func (s span) lines(inside, own int) idMap {
	n := min(s.count, idsPerSandbox-1)
	var m idMap
	if below := min(inside, n); below > 0 {
		m = append(m, mapping{0, s.start, below})
	}
	m = append(m, mapping{inside, own, 1})
	if n > inside {
		m = append(m, mapping{inside + 1, s.start + inside, n - inside})
	}
	return m
}

// args gives the map as newuidmap(1) takes it.
func (m idMap) args(pid int) []string {
	list := []string{strconv.Itoa(pid)}
	for _, e := range m {
		list = append(list, strconv.Itoa(e.from), strconv.Itoa(e.to), strconv.Itoa(e.count))
	}
	return list
}

// sharing is locked while a child that shares this process's memory takes on
// rights in a user namespace that it joins: the kernel then hides the memory, and
// with it the files in /proc of every child that shares it, from their owner.
// It is read-locked while the ids of a child are mapped through those files.
var sharing sync.RWMutex

// startShared starts a sandbox's script and keeps apart what must not happen at
// the same time in one process.
func (id *identity) startShared(b *builder, opt spawn.Options) (*spawn.Process, error) {
	switch {
	case id.rooted():
		return b.Start(opt)
	case id.joined:
		sharing.Lock()
		defer sharing.Unlock()
		defer dumpable()
		return b.Start(opt)
	default:
		sharing.RLock()
		defer sharing.RUnlock()
		return b.Start(opt)
	}
}

// namespace makes a user namespace with the caller's ids.
func (s subIDs) namespace(uid, gid int) (*os.File, error) {
	sharing.RLock()
	defer sharing.RUnlock()
	maps := func(pid int) error {
		for _, c := range [][]string{
			append([]string{s.newuidmap}, s.uids.lines(uid, os.Geteuid()).args(pid)...),
			append([]string{s.newgidmap}, s.gids.lines(gid, os.Getegid()).args(pid)...),
		} {
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", filepath.Base(c[0]), err, strings.TrimSpace(string(out)))
			}
		}
		return nil
	}
	ns, _, err := hold(&spawn.Script{}, unix.CLONE_NEWUSER, maps, false)
	return ns, err
}

// identity gives a sandbox the caller's subordinate ids.
func (s subIDs) identity(u driver.User) (*identity, error) {
	if u.UID < 0 || u.UID >= idsPerSandbox || u.GID < 0 || u.GID >= idsPerSandbox {
		return nil, bailey.Errorf(bailey.CodeUsage, "run as user "+strconv.Itoa(u.UID), "choose an id below 65536",
			"a sandbox has the ids 0 to 65535")
	}
	ns, err := s.namespace(u.UID, u.GID)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeSetupFailed, "give the sandbox its ids",
			"mend /etc/subuid and /etc/subgid, or take your ranges out of them to work with one id", "%w", err)
	}
	return &identity{user: u, ns: ns, hostNS: ns, joined: true}, nil
}

// join makes the child, and then its only child, a member of the prepared
// user namespace and of new namespaces that belong to it.
func (b *builder) join(flags uint64) {
	b.Do("enter the user namespace", unix.SYS_SETNS, spawn.Uint(b.id.ns.Fd()), spawn.Int(unix.CLONE_NEWUSER))
	if others := flags &^ unix.CLONE_NEWPID; others != 0 {
		b.Do("make namespaces", unix.SYS_UNSHARE, spawn.Uint(uintptr(others)))
	}
	b.Again("clone", flags&unix.CLONE_NEWPID)
}

// RemoveForeign removes a folder in which there are files of the caller's
// subordinate ids, which the caller may not touch: rm does it in a user
// namespace in which they are the caller's. The path must be absolute and of
// Bailey's own making.
func RemoveForeign(path string) error { return foreign("rm", path, "-rf", "--one-file-system") }

// ReclaimForeign makes the caller own all that lies in a folder: files that a
// sandbox gave to others of its users cannot be read otherwise. The same holds
// for the path.
func ReclaimForeign(path string) error { return foreign("chown", path, "-hRP", "0:0") }

// foreign runs a program of the host on a path, as root of a user namespace in
// which the caller's subordinate ids exist, with no more rights than that.
func foreign(program, path string, args ...string) error {
	what := program + " " + path
	s, ok := subordinates()
	if os.Geteuid() == 0 || !ok || !filepath.IsAbs(path) {
		return bailey.Errorf(bailey.CodeStorage, what, "do it as root", "there are files of somebody else in it")
	}
	ns, err := s.namespace(0, 0)
	if err != nil {
		return err
	}
	defer ns.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	b := &spawn.Script{}
	b.Do("enter the user namespace", unix.SYS_SETNS, spawn.Uint(ns.Fd()), spawn.Int(unix.CLONE_NEWUSER))
	for fd := range 3 {
		b.Do("standard descriptors", unix.SYS_DUP3, spawn.Uint(null.Fd()), spawn.Int(fd), zero)
	}
	const sigSetmask = 2
	b.Do("unblock signals", unix.SYS_RT_SIGPROCMASK, spawn.Int(sigSetmask), b.Bytes(make([]byte, 8)), zero, spawn.Int(8))
	argv := append(append([]string{program}, args...), "--", path)
	b.Do(program, unix.SYS_EXECVE, b.Str("/bin/"+program), b.Strings(argv), b.Strings(nil))
	sharing.Lock()
	p, err := b.Start(spawn.Options{Cgroup: -1})
	dumpable()
	sharing.Unlock()
	if err != nil {
		return err
	}
	if ws, err := p.Reap(); err != nil || ws.ExitStatus() != 0 {
		return bailey.Errorf(bailey.CodeStorage, what, "do it as root", "it ended with status %d", ws.ExitStatus())
	}
	return nil
}

// dumpable makes this process's files in /proc its own again. A child that
// shares its memory has taken on other rights, and the kernel then hides the
// memory from its owner, who has to write the maps of the next namespace.
func dumpable() {
	unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
}
