package linux

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// Ids of sandboxes started by root come from 1879048192 to 2147352575:
// systemd's table of uid ranges (docs/UIDS-GIDS.md there) marks what lies above
// its container range and below the foreign range as unused, and the default of
// useradd ends far below.
const (
	idsPerSandbox = 65536
	firstRange    = 1879048192
	rangeCount    = (2147352576 - firstRange) / idsPerSandbox
)

// idRange is a range of host ids that belongs to one living sandbox.
type idRange struct {
	base int
	lock *os.File
}

// takeRange reserves a range nobody uses: not another sandbox of this data
// folder, whose lock would be held, and not an entry of /etc/subuid or
// /etc/subgid. hint spreads the search so that it is short.
func takeRange(dir string, hint int) (*idRange, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	taken := append(subordinate("/etc/subuid"), subordinate("/etc/subgid")...)
	for i := range rangeCount {
		n := (hint + i) % rangeCount
		base := firstRange + n*idsPerSandbox
		if overlaps(taken, base) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return &idRange{base, f}, nil
		}
		f.Close()
	}
	return nil, bailey.Errorf(bailey.CodeSetupFailed, "give the sandbox ids of its own",
		"end some sandboxes", "all %d ranges of ids are in use", rangeCount)
}

// release gives the range back. The file stays: removing it would race with
// another process that has just opened it.
func (r *idRange) release() { r.lock.Close() }

type span struct{ start, count int }

// subordinate reads the ranges of a subuid(5) file. A line that is not of its
// form is what the tools of shadow-utils pass over, too.
func subordinate(path string) []span {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var spans []span
	for sc := bufio.NewScanner(f); sc.Scan(); {
		_, rest, ok := strings.Cut(sc.Text(), ":")
		if !ok {
			continue
		}
		if s, ok := parseSpan(rest); ok {
			spans = append(spans, s)
		}
	}
	return spans
}

// parseSpan reads START:COUNT.
func parseSpan(text string) (span, bool) {
	a, b, ok := strings.Cut(text, ":")
	start, err1 := strconv.Atoi(a)
	count, err2 := strconv.Atoi(b)
	return span{start, count}, ok && err1 == nil && err2 == nil && start >= 0 && count >= 0
}

func overlaps(spans []span, base int) bool {
	for _, s := range spans {
		if s.start < base+idsPerSandbox && base < s.start+s.count {
			return true
		}
	}
	return false
}

// idMap is the text of a uid_map or gid_map file.
type idMap []mapping

type mapping struct{ from, to, count int }

func (m idMap) String() string {
	var b strings.Builder
	for _, e := range m {
		fmt.Fprintf(&b, "%d %d %d\n", e.from, e.to, e.count)
	}
	return b.String()
}

// rangeMap maps 0 to 65535 to the range, with inside and host exchanged: a
// file of host on disk belongs to inside in the sandbox, and the other way
// round. With both equal it is the plain map of the range.
func rangeMap(base, inside, host int) idMap {
	if inside == host {
		return idMap{{0, base, idsPerSandbox}}
	}
	var m idMap
	at := 0
	for _, cut := range sorted(inside, host) {
		if cut >= idsPerSandbox {
			break
		}
		if cut > at {
			m = append(m, mapping{at, base + at, cut - at})
		}
		at = cut + 1
	}
	if at < idsPerSandbox {
		m = append(m, mapping{at, base + at, idsPerSandbox - at})
	}
	m = append(m, mapping{host, base + inside, 1})
	if host < idsPerSandbox {
		m = append(m, mapping{inside, base + host, 1})
	}
	return m
}

func sorted(a, b int) [2]int {
	if a > b {
		a, b = b, a
	}
	return [2]int{a, b}
}

// makeUserNS makes a user namespace with the given maps and returns a
// descriptor of it. Only root can write such maps.
func makeUserNS(uids, gids idMap) (*os.File, error) {
	user, _, err := hold(&spawn.Script{}, unix.CLONE_NEWUSER, writeMaps(uids, gids), false)
	return user, err
}

// makeNamespaces makes a user namespace and, before it and so belonging to the
// host, a network namespace with nothing but a loopback that is up.
func makeNamespaces(uids, gids idMap) (user, net *os.File, err error) {
	b := &builder{Script: &spawn.Script{}}
	b.loopback()
	b.Do("user namespace", unix.SYS_UNSHARE, spawn.Int(unix.CLONE_NEWUSER))
	return hold(b.Script, unix.CLONE_NEWNET, writeMaps(uids, gids), true)
}

// writeMaps writes the maps of a process's user namespace, which only root may
// do with ranges.
func writeMaps(uids, gids idMap) func(pid int) error {
	return func(pid int) error {
		proc := "/proc/" + strconv.Itoa(pid)
		if err := writeFile(proc+"/uid_map", uids.String()); err != nil {
			return err
		}
		return writeFile(proc+"/gid_map", gids.String())
	}
}

// hold starts a child that works through s and then only is in its namespaces
// until they have their maps, and descriptors here.
func hold(s *spawn.Script, flags uint64, maps func(pid int) error, withNet bool) (user, net *os.File, err error) {
	var ready, leave [2]int
	if err := unix.Pipe2(ready[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	defer unix.Close(ready[0])
	if err := unix.Pipe2(leave[:], unix.O_CLOEXEC); err != nil {
		unix.Close(ready[1])
		return nil, nil, err
	}
	// The child keeps its two ends and closes all else: the end whose closing it
	// waits for, and those of other children that are made at the same time, which
	// would wait for each other for ever. It says that it is where it should be,
	// and leaves when the parent, alive or dead, closes.
	from := 0
	for _, keep := range []int{min(leave[0], ready[1]), max(leave[0], ready[1])} {
		if keep > from {
			s.Do("close", unix.SYS_CLOSE_RANGE, spawn.Int(from), spawn.Int(keep-1), zero)
		}
		from = keep + 1
	}
	s.Do("close", unix.SYS_CLOSE_RANGE, spawn.Int(from), spawn.Uint(uintptr(^uint32(0))), zero)
	s.Do("ready", unix.SYS_WRITE, spawn.Int(ready[1]), s.Bytes([]byte{1}), spawn.Int(1))
	s.Do("wait", unix.SYS_READ, spawn.Int(leave[0]), s.Bytes(make([]byte, 1)), spawn.Int(1))
	p, err := s.Start(spawn.Options{Flags: flags, Cgroup: -1, NoWait: true})
	unix.Close(leave[0])
	unix.Close(ready[1])
	if err != nil {
		unix.Close(leave[1])
		return nil, nil, err
	}
	defer func() {
		unix.Close(leave[1])
		p.Reap()
		runtime.KeepAlive(s)
	}()
	if n, err := readOne(ready[0]); n != 1 {
		return nil, nil, fmt.Errorf("the child that makes namespaces failed: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	if err := maps(p.Pid); err != nil {
		return nil, nil, err
	}
	proc := "/proc/" + strconv.Itoa(p.Pid)
	if user, err = os.Open(proc + "/ns/user"); err != nil || !withNet {
		return user, nil, err
	}
	if net, err = os.Open(proc + "/ns/net"); err != nil {
		user.Close()
		return nil, nil, err
	}
	return user, net, nil
}

func readOne(fd int) (int, error) {
	var b [1]byte
	for {
		n, err := unix.Read(fd, b[:])
		if err != unix.EINTR {
			return n, err
		}
	}
}

// writeFile writes a file of /proc in one call and creates nothing.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// identity holds the ids of one sandbox.
type identity struct {
	user driver.User
	// As root: the sandbox's user namespace, and the one that maps host-owned
	// files to the sandbox's user (the same unless their ids differ).
	ids    *idRange
	ns     *os.File
	hostNS *os.File
	// ownerNS maps the workspace's owner and nobody else. It is made for a
	// container with folders of the host; see ownerOnly.
	ownerNS *os.File
	net     *os.File // a network namespace for it, when one was made in advance
	link    *os.File // the network namespace of a cell's card
	// As an ordinary user: the maps that the child writes for itself.
	uidMap, gidMap string
	// As an ordinary user with subordinate ids: the namespace ns has several
	// ids, and the child joins it instead of making its own.
	joined bool
}

// rooted says that the sandbox is started by root and has a range of its own.
func (id *identity) rooted() bool { return id.ids != nil }

// single says that all processes of the sandbox are of one user, whom they
// cannot change.
func (id *identity) single(level bailey.Isolation) bool {
	return level == bailey.IsolationProcess || !id.rooted() && !id.joined
}

// kuid is the host id of the sandbox's user.
func (id *identity) kuid() int {
	if id.rooted() {
		return id.ids.base + id.user.UID
	}
	return os.Geteuid()
}

func (id *identity) kgid() int {
	if id.rooted() {
		return id.ids.base + id.user.GID
	}
	return os.Getegid()
}

// built lets go of the namespaces: the sandbox's own processes keep them alive.
func (id *identity) built() {
	if id.hostNS != nil && id.hostNS != id.ns {
		id.hostNS.Close()
	}
	if id.ownerNS != nil {
		id.ownerNS.Close()
	}
	if id.ns != nil {
		id.ns.Close()
	}
	if id.net != nil {
		id.net.Close()
	}
	if id.link != nil {
		id.link.Close()
	}
	id.hostNS, id.ownerNS, id.ns, id.net, id.link = nil, nil, nil, nil, nil
}

func (id *identity) close() {
	id.built()
	if id.ids != nil {
		id.ids.release()
	}
}

// ownerOnly prepares the map for folders of the host that a container sees as
// they are. Its root may give files away and become any of its users; were all
// ids mapped there, it could leave a set-uid program of the host's root, and
// read what others have closed.
func (id *identity) ownerOnly() error {
	if !id.rooted() || id.ownerNS != nil {
		return nil
	}
	u, base := id.user, id.ids.base
	ns, err := makeUserNS(idMap{{u.HostUID, base + u.UID, 1}}, idMap{{u.HostGID, base + u.GID, 1}})
	if err != nil {
		return fmt.Errorf("make a user namespace: %w", err)
	}
	id.ownerNS = ns
	return nil
}

// newIdentity prepares the ids of a sandbox.
func (d *Driver) newIdentity(u driver.User, level bailey.Isolation) (*identity, error) {
	if os.Geteuid() != 0 {
		// The process level has one user, whom it cannot change.
		if level == bailey.IsolationContainer && !d.omit[NoUserNS] {
			if sub, ok := subordinates(); ok {
				return sub.identity(u)
			}
		}
		return &identity{user: u,
			uidMap: idMap{{u.UID, os.Geteuid(), 1}}.String(),
			gidMap: idMap{{u.GID, os.Getegid(), 1}}.String()}, nil
	}
	if u.UID < 0 || u.UID >= idsPerSandbox || u.GID < 0 || u.GID >= idsPerSandbox {
		return nil, bailey.Errorf(bailey.CodeUsage, "run as user "+strconv.Itoa(u.UID), "choose an id below 65536",
			"a sandbox has the ids 0 to 65535")
	}
	id, err := d.takeReserve()
	if err != nil {
		return nil, err
	}
	id.user = u
	if err := id.mapHost(); err != nil {
		id.close()
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	return id, nil
}

// mapHost makes the namespace that maps the host's files to the user inside.
func (id *identity) mapHost() (err error) {
	u, base := id.user, id.ids.base
	id.hostNS = id.ns
	if u.UID != u.HostUID || u.GID != u.HostGID {
		id.hostNS, err = makeUserNS(rangeMap(base, u.UID, u.HostUID), rangeMap(base, u.GID, u.HostGID))
	}
	return err
}
