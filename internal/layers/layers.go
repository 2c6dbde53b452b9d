package layers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"sync"

	"github.com/bailey-sandbox/bailey"
)

// Names in the data folder and in a layer's own folder.
const (
	folderName   = "layers"
	treeName     = "fs"         // the layer's files
	metaName     = "layer.json" // what is known about it
	manifestName = "manifest"   // every path of it, once it is hashed
	newPrefix    = ".new-"      // a layer in the making
	gonePrefix   = ".gone-"     // a layer on its way out
)

// Methods by which a layer came to be.
const (
	Sealed    = "sealed"    // the upper folder itself, moved
	Reflinked = "reflink"   // copied, sharing its blocks with the upper folder
	Copied    = "copied"    // copied byte by byte
	Imported  = "imported"  // read from a canonical form
	Flattened = "flattened" // made of other layers
)

// Store is the folder of all layers of a data folder. Its methods may be called
// by any number of goroutines at once.
type Store struct {
	dir   string
	opt   Options
	marks marks

	mu      sync.Mutex
	known   map[string]*Layer
	uses    map[string]int  // layers that stand on one
	busy    map[string]bool // ids in the making
	flats   map[string]string
	hashing chan struct{} // holds one token while nobody hashes
}

// Layer is one sealed layer.
type Layer struct {
	ID     string // chosen when it is sealed
	Dir    string // the folder to use as lower
	Parent string // the layer below, "" for the ground
	Hash   string // sha256:… of the canonical form; "" until it is known
	Size   int64  // of the canonical form, in bytes; 0 until the hash is known
	Bytes  int64  // of its files; 0 until it was captured or hashed
	Files  int64  // names in it, folders and deletions too; likewise
	Method string // Sealed, Reflinked, Copied, Imported or Flattened
	FlatOf string // the layer whose chain this one replaces, for Flattened
	IDs    IDs
}

// Options configure a Store.
type Options struct {
	// UserXattr: overlay's marks are user.overlay.*, as mounted by an ordinary user.
	UserXattr bool
}

// Open opens the store below the data folder home and ends what a crash has left
// half done.
func Open(home string, opt Options) (*Store, error) {
	s := &Store{
		dir: filepath.Join(home, folderName), opt: opt, marks: trustedMarks,
		known: map[string]*Layer{}, uses: map[string]int{}, busy: map[string]bool{}, flats: map[string]string{}, hashing: make(chan struct{}, 1),
	}
	if opt.UserXattr {
		s.marks = userMarks
	}
	s.hashing <- struct{}{}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, storage("open the layers", err)
	}
	if err := s.recover(); err != nil {
		return nil, err
	}
	return s, nil
}

// Get gives a layer. One whose folder or description is gone or damaged is an
// error with code restore_incomplete that names what is missing.
func (s *Store) Get(id string) (Layer, error) {
	s.mu.Lock()
	known := s.known[id]
	var l Layer
	if known != nil {
		l = *known // Hash completes it
	}
	s.mu.Unlock()
	if known == nil {
		if _, err := os.Lstat(filepath.Join(s.dir, id)); err == nil && validID(id) {
			return Layer{}, incomplete(filepath.Join(s.dir, id, metaName), "the layer's description is missing or damaged")
		}
		return Layer{}, incomplete(filepath.Join(s.dir, id), "the layer is not there")
	}
	fi, err := os.Lstat(l.Dir)
	if err != nil || !fi.IsDir() {
		return Layer{}, incomplete(l.Dir, "the layer's files are not there")
	}
	return l, nil
}

// maxChain bounds what Chain follows: the engine flattens long before.
const maxChain = 4096

// Chain gives the layers below and with id, lowest first; none for "".
func (s *Store) Chain(id string) ([]Layer, error) {
	var list []Layer
	for id != "" {
		l, err := s.Get(id)
		if err != nil {
			return nil, err
		}
		if list = append(list, l); len(list) > maxChain {
			return nil, incomplete(l.Dir, "the layers below each other have no end")
		}
		id = l.Parent
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, nil
}

// Dirs gives the folders of a chain to use as lower, lowest first.
func (s *Store) Dirs(id string) ([]string, error) {
	chain, err := s.Chain(id)
	if err != nil {
		return nil, err
	}
	dirs := make([]string, len(chain))
	for i, l := range chain {
		dirs[i] = l.Dir
	}
	return dirs, nil
}

// All gives every layer, in the order of their ids.
func (s *Store) All() []Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Layer, 0, len(s.known))
	for _, l := range s.known {
		list = append(list, *l)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list
}

// reserve keeps an id for a layer in the making.
func (s *Store) reserve(id, parent string) error {
	if !validID(id) {
		return bailey.Errorf(bailey.CodeInternal, "make a layer", "", "%q is no id of a layer", id)
	}
	if parent != "" {
		if _, err := s.Get(parent); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[id] != nil || s.busy[id] {
		return bailey.Errorf(bailey.CodeConflict, "make the layer "+id, "", "there is one")
	}
	s.busy[id] = true
	s.uses[parent]++ // so that it is not removed meanwhile
	return nil
}

// settle ends what reserve began: with a layer it is known from now on.
func (s *Store) settle(id, parent string, l *Layer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, id)
	s.uses[parent]--
	if l != nil {
		s.learn(l)
	}
}

// learn makes a layer known. s.mu is held, or nobody else has s.
func (s *Store) learn(l *Layer) {
	own := *l // the caller goes on with its own
	s.known[l.ID] = &own
	s.uses[l.Parent]++
	if l.FlatOf != "" {
		s.flats[l.FlatOf] = l.ID
	}
}

func (s *Store) path(id string) string { return filepath.Join(s.dir, id) }

// validID accepts what can be a name of a folder here: 1 to 64 letters, digits,
// dashes and underscores, and dots but not first.
func validID(id string) bool {
	for i, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '.' && i > 0:
		default:
			return false
		}
	}
	return 1 <= len(id) && len(id) <= 64
}

func storage(what string, err error) error {
	if err == nil {
		return nil
	}
	var e *bailey.Error
	if errors.As(err, &e) {
		return err
	}
	fix := "see that the data folder's disk has room and the folder is yours"
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		fix = "do it as root: the sandbox has given files to others of its users"
	}
	return bailey.Errorf(bailey.CodeStorage, what, fix, "%w", err)
}

// incomplete says that path, of a layer or below it, is not as it was.
func incomplete(path, why string) error {
	return bailey.Errorf(bailey.CodeRestoreIncomplete, "use the snapshot's files", "use another snapshot, or put back a backup of the data folder",
		"%s: %s", strconv.Quote(path), why)
}
