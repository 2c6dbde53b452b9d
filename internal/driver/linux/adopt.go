package linux

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
)

var (
	_ driver.Adopter = (*Driver)(nil)
	_ driver.Staying = (*instance)(nil)
)

// record is driver.Record.Data. Fields are added to, never changed: a later
// version of this program reads it.
type record struct {
	// Boot and Started tell the first process from another of its number.
	Boot    string `json:"boot"`
	Started uint64 `json:"started"`
	// IDs is the first host id of the sandbox's range, 0 without one.
	IDs int `json:"ids,omitempty"`
	// Several: an ordinary user's subordinate ids exist inside.
	Several bool           `json:"several,omitempty"`
	Groups  cgroup.Folders `json:"groups"`
	// Limits are those in force; Watched is the memory limit that no group holds.
	Limits  bailey.Limits `json:"limits"`
	Watched int64         `json:"watched,omitempty"`
	// HostRW says that the sandbox may be shown folders of the host writable.
	HostRW bool `json:"host_rw,omitempty"`
}

// Record gives what another process needs to adopt the sandbox.
func (in *instance) Record() driver.Record {
	r := record{Boot: bootID(), Started: in.started, Several: in.id.joined, Groups: in.group.Folders(),
		Limits: in.group.limits, Watched: in.group.watched, HostRW: in.hostrw}
	if in.id.rooted() {
		r.IDs = in.id.ids.base
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // a number of processors that is none; Create has refused it
	}
	return driver.Record{ID: in.spec.ID, Level: in.spec.Level, Pid: in.first.pid, Data: data}
}

// Held gives the descriptors that are still the Instance's.
func (in *instance) Held() map[string]*os.File {
	in.mu.Lock()
	defer in.mu.Unlock()
	files := map[string]*os.File{}
	add := func(name string, f *os.File) {
		if f == nil {
			return
		}
		if raw, err := f.SyscallConn(); err == nil && raw.Control(func(uintptr) {}) == nil { // it is open
			files[name] = f
		}
	}
	add(driver.HeldAgent, in.agent)
	add(driver.HeldPidfd, in.first.pidfd)
	if in.id.rooted() {
		add(driver.HeldIDs, in.id.ids.lock)
	}
	if in.out != nil {
		add(driver.HeldOutletTCP, in.out.TCP)
		add(driver.HeldOutletUDP, in.out.UDP)
	}
	return files
}

// Adopt gives a sandbox that another process has made.
func (d *Driver) Adopt(ctx context.Context, spec driver.Spec, r driver.Record, k driver.Kept) (driver.Instance, error) {
	in, err := d.adopt(spec, r, k)
	if err != nil {
		for _, name := range []string{driver.HeldAgent, driver.HeldPidfd, driver.HeldIDs, driver.HeldOutletTCP, driver.HeldOutletUDP} {
			if f := k.Files[name]; f != nil {
				f.Close()
			}
		}
		return nil, err
	}
	if in.agent == nil {
		// Nobody can speak to it. It has ended for want of its lease, or is about to: with
		// what status, if it has, says nothing of how that came.
		in.Kill(bailey.EndHostLost)
	}
	switch {
	case in.agent == nil, in.first.ended():
		in.watch()
	default:
		go in.watch()
		if in.group.watched > 0 {
			go in.watchMemory(in.group.watched)
		}
	}
	return in, nil
}

func (d *Driver) adopt(spec driver.Spec, r driver.Record, k driver.Kept) (*instance, error) {
	bad := func(code bailey.Code, format string, args ...any) error {
		return bailey.Errorf(code, "adopt the sandbox", "", format, args...)
	}
	if spec.Level != bailey.IsolationProcess && spec.Level != bailey.IsolationContainer {
		return nil, bad(bailey.CodeUsage, "this driver has no level %s", spec.Level)
	}
	var rec record
	dec := json.NewDecoder(bytes.NewReader(r.Data))
	dec.DisallowUnknownFields() // what a newer version has written may be a wall that this one would not know of
	if err := dec.Decode(&rec); err != nil {
		return nil, bad(bailey.CodeUsage, "its record cannot be read: %w", err)
	}
	if spec.ID != r.ID || spec.Level != r.Level || r.Pid <= 1 {
		return nil, bad(bailey.CodeUsage, "the record is one of %s at level %s", r.ID, r.Level)
	}
	g := &group{entry: cgroup.Entry{V2: -1}, limits: rec.Limits, watched: rec.Watched}
	var err error
	if g.Group, err = cgroup.Reopen(d.cgroupHost(), r.ID, rec.Groups); err != nil {
		return nil, err
	}
	in := d.newInstance(spec, nil, g)
	in.hostrw, in.started, in.agent = rec.HostRW, rec.Started, k.Files[driver.HeldAgent]
	in.id = &identity{user: spec.User, joined: rec.Several}
	if in.first, err = adoptFirst(r.Pid, rec, k); err != nil {
		return nil, bad(bailey.CodeSetupFailed, "its first process: %w", err)
	}
	if rec.IDs != 0 {
		if in.id.ids, err = d.adoptRange(rec.IDs, k.Files[driver.HeldIDs], in.first.ended()); err != nil {
			in.first.close()
			return nil, err
		}
	}
	if tcp, udp := k.Files[driver.HeldOutletTCP], k.Files[driver.HeldOutletUDP]; tcp != nil && udp != nil {
		in.out = &driver.Outlet{TCP: tcp, UDP: udp}
	}
	return in, nil
}

// adoptFirst gives the first process by the descriptor that was kept, or else by
// its number if that still is its own.
func adoptFirst(pid int, rec record, k driver.Kept) (*first, error) {
	p := &first{pid: pid, told: k.Wait}
	if f := k.Files[driver.HeldPidfd]; f != nil {
		fd, err := dup(f)
		if err != nil {
			return nil, err
		}
		q, err := newFirst(pid, fd)
		if err != nil {
			return nil, err
		}
		f.Close()
		p.pidfd, p.raw = q.pidfd, q.raw
		return p, nil
	}
	if rec.Boot != bootID() {
		return p, nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH || err == unix.EINVAL {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	// The descriptor means one process from here on, so the look decides.
	if started := startOf(pid); started == 0 || started != rec.Started {
		unix.Close(fd)
		return p, nil
	}
	q, err := newFirst(pid, fd)
	if err != nil {
		return nil, err
	}
	p.pidfd, p.raw = q.pidfd, q.raw
	return p, nil
}

// adoptRange goes on with a range of ids. Of a sandbox that has ended there may
// be nobody any more who has it, and another one may have been given it.
func (d *Driver) adoptRange(base int, lock *os.File, ended bool) (*idRange, error) {
	n := (base - firstRange) / idsPerSandbox
	if n < 0 || n >= rangeCount || base != firstRange+n*idsPerSandbox {
		return nil, bailey.Errorf(bailey.CodeUsage, "adopt the sandbox", "", "%d begins no range of ids", base)
	}
	if lock != nil {
		return &idRange{base, lock}, nil
	}
	f, err := os.OpenFile(filepath.Join(d.opt.State, "ids", strconv.Itoa(n)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "adopt the sandbox", "", "%w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil && !ended {
		f.Close()
		return nil, bailey.Errorf(bailey.CodeBusy, "adopt the sandbox", "", "another process has its ids")
	}
	return &idRange{base, f}, nil
}

// dup gives another descriptor of f's file, close-on-exec.
func dup(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(have uintptr) { fd, err = unix.FcntlInt(have, unix.F_DUPFD_CLOEXEC, 3) }); e != nil {
		return -1, e
	}
	return fd, err
}
