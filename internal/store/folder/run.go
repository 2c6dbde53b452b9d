package folder

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/disk"
)

const (
	recordName = "run.json"
	lockName   = "lock"
	newPrefix  = ".new-"  // a run that is being made
	gonePrefix = ".gone-" // a run that is being removed
)

// Run is one run's folder. Its fields may be changed by the holder of its
// lock, who then calls Save.
type Run struct {
	Record Record
	// Err is why the record could not be read; Record then holds the id only.
	Err    error
	folder *Folder
	dir    string
	lock   *os.File
	disk   *disk.Mount
}

// Dir gives the absolute path of the run's folder.
func (r *Run) Dir() string { return r.dir }

// ID gives the run's id.
func (r *Run) ID() string { return r.Record.ID }

// Create makes a run's folder with its lock held and its record written,
// and gives it its name only then, so that nobody ever sees half a run. It
// sets Version, ID, State (running) and Started of rec.
func (f *Folder) Create(rec Record) (*Run, error) {
	r, err := f.Ready(rec)
	if err != nil {
		return nil, err
	}
	if err := r.publish(); err != nil {
		os.RemoveAll(r.dir)
		r.Close()
		return nil, err
	}
	return r, nil
}

// Ready is Create but for the name: no list shows the run until Begin, and
// when whoever holds its lock dies before that, Sweep removes it like any other
// that was never finished being made.
func (f *Folder) Ready(rec Record) (*Run, error) {
	const what = "create a run"
	runs, err := f.ensure("runs")
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Run, error) {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	// A sweep removes unfinished runs that nobody has locked; this shared
	// lock keeps it away between mkdir and the run's own lock.
	gate, err := os.Open(runs)
	if err != nil {
		return fail(err)
	}
	defer gate.Close()
	spread(int(gate.Fd()))
	if err := retry(func() error { return unix.Flock(int(gate.Fd()), unix.LOCK_SH) }); err != nil {
		return fail(err)
	}
	rec.Version, rec.State, rec.Started = RecordVersion, StateRunning, time.Now().UTC()
	for {
		rec.ID = newID()
		if _, err := os.Lstat(filepath.Join(runs, rec.ID)); err == nil {
			continue
		}
		r := &Run{Record: rec, folder: f, dir: filepath.Join(runs, newPrefix+rec.ID)}
		if err := os.Mkdir(r.dir, 0o700); errors.Is(err, os.ErrExist) {
			continue
		} else if err != nil {
			return fail(err)
		}
		err := r.Lock()
		if err == nil {
			err = r.Save()
		}
		if err != nil {
			os.RemoveAll(r.dir)
			r.Close()
			return fail(err)
		}
		return r, nil
	}
}

// Begin makes a run of Ready one like any other, which started now. Dir is
// another one afterwards.
func (r *Run) Begin() error {
	if r.lock == nil {
		return bailey.Errorf(bailey.CodeInternal, "begin a run", "", "the run's lock is not held")
	}
	var err error
	if r.Record.Started, err = r.startStamp(); err != nil {
		return bailey.Errorf(bailey.CodeStorage, "begin a run", "", "%w", err)
	}
	if err := r.Save(); err != nil {
		return err
	}
	return r.publish()
}

// publish gives the run its name.
func (r *Run) publish() error {
	final := filepath.Join(filepath.Dir(r.dir), r.ID())
	err := unix.Renameat2(unix.AT_FDCWD, r.dir, unix.AT_FDCWD, final, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // a file system without the flag, such as NFS
		err = os.Rename(r.dir, final)
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, "create a run", "", "%w", err)
	}
	r.dir = final
	return nil
}

// Alive tells whether the run id goes on: its sandbox lives, or is being made.
// It is true as well where that cannot be known.
func (f *Folder) Alive(id string) bool {
	if !validID(id) {
		return false
	}
	// In this order: the name changes at most from the first to the second.
	runs := filepath.Join(f.path, "runs")
	made := &Run{Record: Record{ID: id}, folder: f, dir: filepath.Join(runs, newPrefix+id)}
	if _, err := os.Lstat(made.dir); err == nil && made.held() {
		return true
	}
	r := f.load(id)
	return r != nil && (r.Err != nil || r.State() == StateRunning)
}

// Lock takes the run's lock: an open file description lock, which ends when
// the last descriptor to it is closed, by whatever death. Unlike flock's, it
// can be asked about without being taken, so a list never disturbs an owner.
// A lock that somebody holds is an error with code busy. The record is read
// again, since its former holder may have changed it.
func (r *Run) Lock() error {
	if r.lock != nil {
		return nil
	}
	const what = "take the run's lock"
	l, err := os.OpenFile(filepath.Join(r.dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return bailey.Errorf(bailey.CodeNotFound, what, "", "run %s is gone", r.ID())
		}
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(l.Fd(), unix.F_OFD_SETLK, &lk); err != nil {
		l.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return bailey.Errorf(bailey.CodeBusy, what, "wait until it has ended", "run %s is in use", r.ID())
		}
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	if rec, err := readRecord(r.dir); err == nil {
		r.Record, r.Err = rec, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		r.Err = err
	}
	r.lock = l
	return nil
}

// LockFile gives the open lock file, close-on-exec, for a process that has to
// hold the lock beside this one; nil when the lock is not held.
func (r *Run) LockFile() *os.File { return r.lock }

// Close gives up the lock. The Run can be locked again.
func (r *Run) Close() error {
	err := r.disk.Close()
	r.disk = nil
	if r.lock != nil {
		// A child that is about to execute something may have copies of this
		// process's descriptors for a moment, and with them the lock.
		unix.FcntlFlock(r.lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
		err = errors.Join(err, r.lock.Close())
		r.lock = nil
	}
	return err
}

// held asks whether somebody else holds the lock, without taking it.
func (r *Run) held() bool {
	if r.lock != nil {
		return true
	}
	l, err := os.OpenFile(filepath.Join(r.dir, lockName), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		// Without a lock file nobody can hold it; any other failure must
		// not make a live run look dead.
		return !errors.Is(err, os.ErrNotExist)
	}
	defer l.Close()
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(l.Fd(), unix.F_OFD_GETLK, &lk); err != nil {
		return true
	}
	return lk.Type != unix.F_UNLCK
}

// State gives the run's state now: what the record says, but interrupted
// for a run that says running while nobody holds its lock.
func (r *Run) State() State {
	if r.Record.State == StateRunning && r.lock == nil && !r.held() {
		// Its owner may have ended it between our read and our question.
		if rec, err := readRecord(r.dir); err == nil && rec.State != StateRunning {
			r.Record = rec
			return rec.State
		}
		return StateInterrupted
	}
	return r.Record.State
}

// Save writes the record in one step: a reader sees the old or the new one.
// Once a run has ended it also waits for the disk. Only the lock's holder
// may call it.
func (r *Run) Save() error { return r.save(r.Record.State != StateRunning) }

// SaveSoon is Save without the wait for the disk, for a run of which nothing is
// worth keeping. After a power cut the record may be the old one or unreadable.
func (r *Run) SaveSoon() error { return r.save(false) }

func (r *Run) save(sync bool) error {
	const what = "write the run's record"
	if r.lock == nil {
		return bailey.Errorf(bailey.CodeInternal, what, "", "the run's lock is not held")
	}
	if err := r.Record.validate(); err != nil {
		return bailey.Errorf(bailey.CodeInternal, what, "", "%w", err)
	}
	data, err := json.MarshalIndent(&r.Record, "", "  ")
	if err == nil {
		err = replaceFile(filepath.Join(r.dir, recordName), append(data, '\n'), sync)
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	return nil
}

func replaceFile(path string, data []byte, sync bool) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
	}
	return err
}

func readRecord(dir string) (Record, error) {
	f, err := os.OpenFile(filepath.Join(dir, recordName), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Record{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return Record{}, err
	}
	if fi.Size() > maxRecord {
		return Record{}, errors.New("the record is too large")
	}
	data := make([]byte, fi.Size())
	if _, err := readFull(f, data); err != nil {
		return Record{}, err
	}
	return ParseRecord(data)
}

func readFull(f *os.File, b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, err := f.Read(b[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
