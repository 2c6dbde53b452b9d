package secrets

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/bailey-sandbox/bailey"
)

// Source is where a value comes from.
type Source string

// The sources. Of a command the store keeps the command, which is run when the
// value is needed; of the others the value.
const (
	Stdin       Source = "stdin"
	File        Source = "file"
	Environment Source = "environment"
	Command     Source = "command"
)

// KeepOld is how long a replaced value is kept, sealed, so that it is still
// taken out of answers.
const KeepOld = 30 * 24 * time.Hour

// Store is the sealed store of one data folder. Its methods may be called by
// several goroutines and processes at once.
type Store struct {
	home     string
	keyFile  string // "" the one of the data folder
	passFile string
	// work is the logarithm of what trying a passphrase costs, 0 age's default
	// (18: a second and 256 MiB). Tests take less.
	work int

	mu  sync.Mutex
	key *age.X25519Identity
}

// Open gives the store of the data folder home. Nothing is read or made yet:
// the folders and the key are made when the first thing is sealed.
func Open(home string) *Store {
	return &Store{home: home, keyFile: os.Getenv(EnvKeyFile), passFile: os.Getenv(EnvPassphraseFile)}
}

// Folder is where the files of secrets lie. It is made with the first.
func (s *Store) Folder() string { return s.dir() }

func (s *Store) dir() string { return filepath.Join(s.home, "secrets") }

// Info is what may be told of a secret.
type Info struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	// Version counts from 1.
	Version int    `json:"version"`
	Source  Source `json:"source"`
	// Prefix is the vendor's prefix of the value, "" if it has none that is known
	// or comes from a command.
	Prefix string `json:"prefix,omitempty"`
	// Length is short (under 32 bytes), token (under 128), long (under 4096) or document.
	Length  string `json:"length,omitempty"`
	Revoked bool   `json:"revoked,omitempty"`
	// Old counts replaced values that are still taken out of answers.
	Old int `json:"old,omitempty"`
}

// entry is a secret's file.
type entry struct {
	Format   int       `json:"format"` // 1
	Name     string    `json:"name"`
	Created  time.Time `json:"created"`
	Revoked  bool      `json:"revoked,omitempty"`
	Versions []version `json:"versions"` // the newest last
}

type version struct {
	Number   int       `json:"number"`
	Created  time.Time `json:"created"`
	Replaced time.Time `json:"replaced,omitzero"`
	Source   Source    `json:"source"`
	Prefix   string    `json:"prefix,omitempty"`
	Length   string    `json:"length,omitempty"`
	Sealed   []byte    `json:"sealed"`
}

func (e *entry) info() Info {
	v := e.Versions[len(e.Versions)-1]
	return Info{Name: e.Name, Created: e.Created, Updated: v.Created, Version: v.Number, Source: v.Source,
		Prefix: v.Prefix, Length: v.Length, Revoked: e.Revoked, Old: len(e.Versions) - 1}
}

// CheckName says whether name can be a secret's: a letter or _, then letters,
// digits, _, . and -, at most 128.
func CheckName(name string) error {
	if isName(name) {
		return nil
	}
	return bailey.Errorf(bailey.CodeUsage, "use the secret", "use a letter or _, then letters, digits, _ . -", "%q is no name of a secret", name)
}

func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '_':
		case i > 0 && (c >= '0' && c <= '9' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return s != "" && len(s) <= 128
}

func (s *Store) path(name string) string { return filepath.Join(s.dir(), name+".json") }

func (s *Store) load(name string) (*entry, error) {
	const what = "read the secret"
	if err := CheckName(name); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.Errorf(bailey.CodeNotFound, what, "bailey secret set "+name, "there is no secret %s", name)
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	var e entry
	if json.Unmarshal(text, &e) != nil || e.Format != 1 || e.Name != name || len(e.Versions) == 0 {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "set it again", "the file of %s is damaged", name)
	}
	return &e, nil
}

func (s *Store) save(e *entry) error {
	text, err := json.MarshalIndent(e, "", " ")
	if err == nil {
		err = replace(s.path(e.Name), append(text, '\n'))
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, "keep the secret", "", "%w", err)
	}
	return nil
}

// Set keeps a value, or for the source Command the command, as the newest
// version of name. The one before stays for KeepOld. A revoked name is in
// force again.
func (s *Store) Set(name string, from Source, value []byte) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	v := version{Source: from, Created: time.Now().UTC()}
	if from == Command {
		if err := checkCommand(value); err != nil {
			return Info{}, err
		}
	} else {
		if err := checkValue(name, value); err != nil {
			return Info{}, err
		}
		v.Prefix, v.Length = Prefix(value), lengthClass(len(value))
	}
	unlock, err := s.lock()
	if err != nil {
		return Info{}, bailey.Errorf(bailey.CodeStorage, "keep the secret", "", "%w", err)
	}
	defer unlock()
	e, err := s.load(name)
	if bailey.CodeOf(err) == bailey.CodeNotFound {
		// On a disk that ignores case, both would be one file.
		if other := s.sameButCase(name); other != "" {
			return Info{}, bailey.Errorf(bailey.CodeConflict, "keep the secret", "use another name", "%s differs from %s in case only", name, other)
		}
		e, err = &entry{Format: 1, Name: name, Created: v.Created}, nil
	}
	if err != nil {
		return Info{}, err
	}
	v.Number = 1
	if n := len(e.Versions); n > 0 {
		e.Versions[n-1].Replaced = v.Created
		v.Number = e.Versions[n-1].Number + 1
	}
	if v.Sealed, err = s.seal(label(name, v.Number), value); err != nil {
		return Info{}, err
	}
	e.Revoked = false
	e.Versions = slices.DeleteFunc(e.Versions, func(o version) bool { return v.Created.Sub(o.Replaced) > KeepOld })
	e.Versions = append(e.Versions, v)
	if err := s.save(e); err != nil {
		return Info{}, err
	}
	return e.info(), nil
}

func (s *Store) sameButCase(name string) string {
	all, _ := os.ReadDir(s.dir())
	for _, f := range all {
		if n, ok := strings.CutSuffix(f.Name(), ".json"); ok && n != name && strings.EqualFold(n, name) {
			return n
		}
	}
	return ""
}

// List gives all secrets, by name.
func (s *Store) List() ([]Info, error) {
	files, err := os.ReadDir(s.dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.Errorf(bailey.CodeStorage, "list the secrets", "", "%w", err)
	}
	all := []Info{}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok {
			continue
		}
		e, err := s.load(name)
		if bailey.CodeOf(err) == bailey.CodeNotFound {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, e.info())
	}
	return all, nil
}

// Remove takes a secret with all its versions away: nothing is left to take
// out of answers. Revoke first where sandboxes that had it still run.
func (s *Store) Remove(name string) error {
	return s.change(name, "remove the secret", func(*entry) error { return remove(s.path(name)) })
}

// Revoke makes a secret unusable, for sandboxes that have it as well, while
// its values are still taken out of answers.
func (s *Store) Revoke(name string) error {
	return s.change(name, "revoke the secret", func(e *entry) error {
		e.Revoked = true
		return s.save(e)
	})
}

func (s *Store) change(name, what string, do func(*entry) error) error {
	if err := CheckName(name); err != nil {
		return err
	}
	unlock, err := s.lock()
	if err == nil {
		defer unlock()
		var e *entry
		if e, err = s.load(name); err != nil {
			return err
		}
		err = do(e)
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	return nil
}
