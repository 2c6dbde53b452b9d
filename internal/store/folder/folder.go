package folder

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	bailey "github.com/bailey-sandbox/bailey"
)

// EnvHome is the environment variable that overrides where the data folder is.
const EnvHome = "BAILEY_HOME"

// Folder is the data folder. The zero value is not usable; see Open.
type Folder struct {
	path string
}

// DefaultPath says where the data folder is: $BAILEY_HOME; else
// /var/lib/bailey for root; else $XDG_DATA_HOME/bailey; else
// ~/.local/share/bailey. It does not look at the disk.
func DefaultPath() (string, error) {
	const what = "find the data folder"
	if p := os.Getenv(EnvHome); p != "" {
		if !filepath.IsAbs(p) {
			return "", bailey.Errorf(bailey.CodeUsage, what, "give an absolute path", "%s is %q, a relative path", EnvHome, p)
		}
		return filepath.Clean(p), nil
	}
	if os.Geteuid() == 0 {
		return "/var/lib/bailey", nil
	}
	// The XDG base directory specification: a relative value is to be ignored.
	if p := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(p) {
		return filepath.Join(p, "bailey"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", bailey.Errorf(bailey.CodeStorage, what, "set HOME or "+EnvHome, "HOME is not set to an absolute path")
	}
	return filepath.Join(home, ".local", "share", "bailey"), nil
}

// Open opens the data folder at DefaultPath.
func Open() (*Folder, error) {
	p, err := DefaultPath()
	if err != nil {
		return nil, err
	}
	return OpenAt(p)
}

// OpenAt opens the data folder at path. A folder that does not exist is
// fine and is not made yet. One that another user owns, or that group or
// others may write to, is an error with code storage.
func OpenAt(path string) (*Folder, error) {
	f := &Folder{path: filepath.Clean(path)}
	err := f.check()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// Mounts name layers by path, and the kernel resolves links then; a
	// path without links is the same for everybody.
	if err == nil {
		if p, err := filepath.EvalSymlinks(f.path); err == nil {
			f.path = p
		}
	}
	return f, nil
}

// Path gives the absolute path of the data folder.
func (f *Folder) Path() string { return f.path }

// check refuses a data folder that somebody else controls.
func (f *Folder) check() error {
	const what = "use the data folder"
	fi, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	if !fi.IsDir() {
		return bailey.Errorf(bailey.CodeStorage, what, "move it away or set "+EnvHome, "%s is not a folder", f.path)
	}
	st := fi.Sys().(*syscall.Stat_t)
	if int(st.Uid) != os.Geteuid() {
		return bailey.Errorf(bailey.CodeStorage, what, "set "+EnvHome+" to a folder of your own",
			"%s belongs to user %d, and you are user %d", f.path, st.Uid, os.Geteuid())
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return bailey.Errorf(bailey.CodeStorage, what, "run chmod go-w on it after looking at what is in it",
			"%s can be written to by other users (mode %04o)", f.path, fi.Mode().Perm())
	}
	return nil
}

// ensure makes the data folder and the folder rel below it, and gives the
// latter's path.
func (f *Folder) ensure(rel string) (string, error) {
	p := filepath.Join(f.path, rel)
	// The common case costs one system call.
	if fi, err := os.Lstat(p); err == nil && fi.IsDir() {
		return p, nil
	}
	if err := os.MkdirAll(p, 0o700); err != nil {
		return "", bailey.Errorf(bailey.CodeStorage, "make a folder in the data folder", "", "%w", err)
	}
	// What lies there may have been made by somebody else since OpenAt.
	if err := f.check(); err != nil {
		return "", err
	}
	return p, nil
}

// Cache gives the folder for what can be made again, making it if needed.
func (f *Folder) Cache() (string, error) { return f.ensure("cache") }

// Trust gives the folder of trusted hashes, making it if needed.
func (f *Folder) Trust() (string, error) { return f.ensure("trust") }

// validHome says whether name can name a persistent home. It is not a regular
// expression, since compiling one takes a fifth of a millisecond of every start.
func validHome(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return 1 <= len(name) && len(name) <= 64
}

// ProjectHash names a project folder: the first 16 bytes of the SHA-256 of
// its resolved path, in hex.
func ProjectHash(root string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(root)))
	return hex.EncodeToString(sum[:16])
}

// Home gives the persistent HOME called name of the project whose resolved
// workspace path is root, making it if needed. Names are 1 to 64 letters,
// digits, dots, dashes and underscores and start with a letter or digit.
func (f *Folder) Home(root, name string) (string, error) {
	if !validHome(name) {
		return "", bailey.Errorf(bailey.CodeUsage, "use a persistent home",
			"use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first", "%q is not a usable name", name)
	}
	return f.ensure(filepath.Join("homes", ProjectHash(root), name))
}
