package project

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Store keeps which files a person has trusted: one small file for each pair
// of path and hash, in a folder of Bailey's data folder that sandboxes cannot
// reach. Trust in one text is no trust in a later one, nor in the same text
// elsewhere.
type Store struct {
	dir string
}

// NewStore gives the store in dir, which need not exist: nothing is trusted then.
func NewStore(dir string) *Store { return &Store{dir: dir} }

// entry is what is kept of one trusted file.
type entry struct {
	Path    string    `json:"path"`
	Hash    string    `json:"hash"`
	Trusted time.Time `json:"trusted"`
}

// prefix begins the names of all entries for a path.
func prefix(p string) string { return hashOf([]byte(p))[:32] + "-" }

func (s *Store) file(p, hash string) string { return filepath.Join(s.dir, prefix(p)+hash+".json") }

func storage(what string, err error) error {
	return bailey.Errorf(bailey.CodeStorage, what, "check BAILEY_HOME", "%w", err)
}

// checkHash refuses what is not a SHA-256, since it becomes part of a name.
func checkHash(hash string) error {
	if len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" {
		return bailey.Errorf(bailey.CodeUsage, "trust a project's file", "", "%q is not a SHA-256 in hexadecimal digits", short(hash))
	}
	return nil
}

// Trust records that a person trusts the file at the absolute path p while its
// SHA-256 is hash. It must be the hash of the bytes that the person was shown.
func (s *Store) Trust(p, hash string) error {
	const what = "trust a project's file"
	if err := checkHash(hash); err != nil {
		return err
	}
	if !filepath.IsAbs(p) {
		return bailey.Errorf(bailey.CodeUsage, what, "", "%q is not an absolute path", p)
	}
	data, err := json.Marshal(entry{Path: p, Hash: hash, Trusted: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return storage(what, err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return storage(what, err)
	}
	f, err := os.CreateTemp(s.dir, ".new-") // mode 0600
	if err != nil {
		return storage(what, err)
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return storage(what, err)
	}
	if err := os.Rename(f.Name(), s.file(p, hash)); err != nil {
		return storage(what, err)
	}
	return nil
}

// Trusted says whether a person trusts the file at p while its hash is this.
// An entry that cannot be read, or does not say so itself, is no trust.
func (s *Store) Trusted(p, hash string) bool {
	if checkHash(hash) != nil {
		return false
	}
	data, err := os.ReadFile(s.file(p, hash))
	if err != nil {
		return false
	}
	var e entry
	return json.Unmarshal(data, &e) == nil && e.Path == p && e.Hash == hash
}

// Untrust forgets every trust in the file at p, in whatever state it was
// trusted, and says how many there were.
func (s *Store) Untrust(p string) (int, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, storage("forget a trusted file", err)
	}
	n := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix(p)) {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, storage("forget a trusted file", err)
		}
		n++
	}
	return n, nil
}

// known says whether the file at p was trusted in some other state.
func (s *Store) known(p string) bool {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix(p)) {
			return true
		}
	}
	return false
}
