package image

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"golang.org/x/sys/unix"
)

// A Store is a folder that holds prepared root file systems:
//
//	layers/<sha256 of the uncompressed tar>/fs     the files
//	layers/<…>/layer.json                          what was unpacked; its presence says that it is whole
//	layers/<…>/owners                              with ids "single": the ids of the image
//	images/<sha256>.json                           layers and configuration of an image
//	sources/<sha256>.json                          which image an unchanged source gave
//	names/<sha256 of the name>.json                which image a name means
//	cache/<sha256>.json                            which layer a step of a build gave
//	blobs/…                                        manifests and layers as they came
//	locks/<sha256>                                 held while that layer is being made
//	tmp/                                           what is being made; each part is locked by its maker
//
// Everything appears by rename, so a reader never sees a half-made thing. The
// store belongs to one user and nobody else can enter it: files of images keep
// their set-id bits and capabilities.
type Store struct {
	dir    string
	ids    rootfs.IDs
	limits unpack.Limits
	// machine is the platform whose images are chosen, as Go names it.
	machine platform
	host    host
}

// Open opens the store in dir, making it if it is not there, and removes what
// makers that died have left. dir must belong to the caller alone.
func Open(dir string, limits unpack.Limits) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, storage("open the image store", err)
	}
	for _, d := range []string{"", "layers", "images", "sources", "names", "cache", "blobs/sha256", "blobs/partial", "locks", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, storage("open the image store", err)
		}
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, storage("open the image store", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, storage("open the image store", err)
	}
	if int(st.Uid) != os.Geteuid() {
		return nil, bailey.Errorf(bailey.CodeStorage, "open the image store", "use a folder of your own",
			"%s belongs to user %d: its layers are that user's word for what they hold", dir, st.Uid)
	}
	if st.Mode&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, storage("close the image store to others", err)
		}
	}
	s := &Store{dir: dir, limits: limits, machine: thisMachine(), host: thisHost()}
	if err := s.sweep(); err != nil {
		return nil, storage("clear the image store of leftovers", err)
	}
	if s.ids, err = s.probeIDs(); err != nil {
		return nil, storage("try what the image store can hold", err)
	}
	return s, nil
}

// probeIDs finds out whether files here can have any owner and overlayfs's
// trusted marks. Being uid 0 is not enough: it may be that of a container.
func (s *Store) probeIDs() (rootfs.IDs, error) {
	if os.Geteuid() != 0 {
		return rootfs.IDsSingle, nil
	}
	fd, err := unix.Open(filepath.Join(s.dir, "tmp"), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == unix.EOPNOTSUPP || err == unix.EISDIR {
		name := filepath.Join(s.dir, "tmp", ".probe-"+strconv.FormatUint(rand.Uint64(), 36))
		if fd, err = unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
			defer os.Remove(name)
		}
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if unix.Fchown(fd, 65535, 65535) != nil || unix.Fsetxattr(fd, "trusted.overlay.opaque", []byte("y"), 0) != nil {
		return rootfs.IDsSingle, nil
	}
	return rootfs.IDsHost, nil
}

func storage(what string, err error) error {
	var own *bailey.Error
	if errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return bailey.Errorf(bailey.CodeStorage, what, "check that the data folder has room and is writable", "%w", err)
}

// workbench is a folder below tmp that its maker holds locked. It goes when
// its maker is done with it, or by the next sweep after its maker has died.
type workbench struct {
	store *Store
	name  string
	dir   *os.File // holds the lock
}

func (s *Store) bench() (*workbench, error) {
	tmp, err := os.Open(filepath.Join(s.dir, "tmp"))
	if err != nil {
		return nil, err
	}
	defer tmp.Close()
	// Shared with other makers, against a sweep that would take an unlocked
	// newborn for a leftover.
	if err := flock(tmp, unix.LOCK_SH); err != nil {
		return nil, err
	}
	name := strconv.FormatUint(rand.Uint64(), 36)
	path := filepath.Join(s.dir, "tmp", name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := flock(dir, unix.LOCK_EX); err != nil {
		dir.Close()
		return nil, err
	}
	return &workbench{s, name, dir}, nil
}

func (b *workbench) path(name string) string {
	return filepath.Join(b.store.dir, "tmp", b.name, name)
}

// remove is harmless after the bench has been renamed away.
func (b *workbench) remove() {
	defer b.dir.Close()
	if tmp, err := os.Open(filepath.Join(b.store.dir, "tmp")); err == nil {
		defer tmp.Close()
		// What cannot be removed now is the next sweep's.
		_ = unpack.RemoveAll(tmp, b.name)
	}
}

// sweep removes workbenches whose makers are dead.
func (s *Store) sweep() error {
	tmp, err := os.Open(filepath.Join(s.dir, "tmp"))
	if err != nil {
		return err
	}
	defer tmp.Close()
	names, err := tmp.Readdirnames(-1)
	if err != nil || len(names) == 0 {
		return err
	}
	if err := flock(tmp, unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK {
		return nil // somebody begins a bench or sweeps
	} else if err != nil {
		return err
	}
	dead := map[string]*os.File{}
	for _, name := range names {
		d, err := os.Open(filepath.Join(s.dir, "tmp", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if flock(d, unix.LOCK_EX|unix.LOCK_NB) != nil {
			d.Close()
			continue
		}
		dead[name] = d
	}
	// Our locks keep other sweepers off; makers need not wait for the removal.
	if err := flock(tmp, unix.LOCK_UN); err != nil {
		return err
	}
	for name, d := range dead {
		if rerr := unpack.RemoveAll(tmp, name); rerr != nil && err == nil {
			err = fmt.Errorf("remove %s: %w", name, rerr)
		}
		d.Close()
	}
	return err
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			return err
		}
	}
}

// lock takes the lock with the given name, waiting for whoever has it.
func (s *Store) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "locks", name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- flock(f, unix.LOCK_EX) }()
	select {
	case err = <-done:
		if err != nil {
			f.Close()
			return nil, err
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		// The wait cannot be broken off; whenever it ends, the lock goes again.
		go func() { <-done; f.Close() }()
		return nil, ctx.Err()
	}
}

// writeJSON puts v at kind/<name>.json, whole or not at all.
func (s *Store) writeJSON(kind, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	bench, err := s.bench()
	if err != nil {
		return err
	}
	defer bench.remove()
	if err := writeSynced(bench.path("json"), b); err != nil {
		return err
	}
	return os.Rename(bench.path("json"), filepath.Join(s.dir, kind, name+".json"))
}

// readJSON reads what writeJSON wrote. A file that is damaged counts as absent:
// everything in the store can be made again.
func (s *Store) readJSON(kind, name string, v any) bool {
	b, err := os.ReadFile(filepath.Join(s.dir, kind, name+".json"))
	return err == nil && json.Unmarshal(b, v) == nil
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

// isDigest says whether name is a sha256 in hex, as the store's names are.
func isDigest(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 32 && hex.EncodeToString(b) == name
}

// stepRecord is cache/<key>.json.
type stepRecord struct {
	Layer Layer `json:"layer"`
}

// Step gives the layer that a step of a build has made before. known without
// whole says that it was made, but is not there any more.
func (s *Store) Step(key string) (l Layer, known, whole bool) {
	var r stepRecord
	if !isDigest(key) || !s.readJSON("cache", key, &r) {
		return l, false, false
	}
	if !s.Whole(r.Layer) {
		return l, true, false
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(s.dir, "cache", key+".json"), now, now) // else it is forgotten earlier
	return r.Layer, true, true
}

// SetStep remembers which layer a step has made.
func (s *Store) SetStep(key string, l Layer) error {
	return storageOrNil("remember the step", s.writeJSON("cache", key, stepRecord{l}))
}

// IDs says what the ids of files in the store's layers mean.
func (s *Store) IDs() rootfs.IDs { return s.ids }
