package way

import (
	"bytes"
	"io"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// Places gives the places of the way's files. In a root of the sandbox's own,
// whose layers root has, they are files that programs inside may replace; in one that
// shows folders of the host by the places shown, they are mounts over those, of files
// that are written into dir.
func (o *Opened) Places(root rootfiles.Root, shown []driver.Place, dir string) ([]driver.Place, error) {
	at := run.HostTrust(shown)
	if len(root.Layers) > 0 {
		at = run.RootTrust(root)
	}
	files := make([]control.File, len(o.Files))
	for i, f := range o.Files {
		files[i] = control.File{Path: f.Path, Mode: f.Mode, Content: f.Content}
	}
	return run.TrustPlaces(files, at, func(name string, content []byte, mode os.FileMode) (string, error) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		if err := os.Remove(p); err != nil && !os.IsNotExist(err) { // it may be shown somewhere
			return "", err
		}
		return p, os.WriteFile(p, content, mode)
	})
}

// maxNames bounds a name table's file, in bytes; the gate refuses larger ones.
const maxNames = 5 << 20

// CopyNames copies a name table's file for a fork, up to its last whole line. The
// parent's gate may be writing to it. One that is not there is an empty one.
func CopyNames(from, to string) error {
	const what = "copy the table of names"
	f, err := os.Open(from)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxNames+1))
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	if len(text) > maxNames {
		return errNames
	}
	if err := os.WriteFile(to, text[:bytes.LastIndexByte(text, '\n')+1], 0o600); err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	return nil
}
