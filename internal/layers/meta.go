package layers

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const metaVersion = 1

// maxMeta bounds a description that is read, in bytes.
const maxMeta = 64 << 10

// meta is the file layer.json.
type meta struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Parent  string    `json:"parent,omitempty"`
	Method  string    `json:"method"`
	FlatOf  string    `json:"flat_of,omitempty"`
	Created time.Time `json:"created"`
	Bytes   int64     `json:"bytes,omitempty"`
	Files   int64     `json:"files,omitempty"`
	Hash    string    `json:"hash,omitempty"`
	Size    int64     `json:"size,omitempty"`
	IDs     IDs       `json:"ids,omitzero"`
}

func (l *Layer) meta(created time.Time) meta {
	return meta{Version: metaVersion, ID: l.ID, Parent: l.Parent, Method: l.Method, FlatOf: l.FlatOf, Created: created.UTC(),
		Bytes: l.Bytes, Files: l.Files, Hash: l.Hash, Size: l.Size, IDs: l.IDs}
}

// parseMeta reads a description. It lies beside files of a sandbox, on a disk
// that may have been damaged, and is believed only if it is in order.
func parseMeta(b []byte) (meta, error) {
	var m meta
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return meta{}, err
	}
	if _, err := d.Token(); err != io.EOF {
		return meta{}, errors.New("there is something behind it")
	}
	switch {
	case m.Version != metaVersion:
		return meta{}, errors.New("it is of another version")
	case !validID(m.ID) || m.Parent != "" && !validID(m.Parent) || m.FlatOf != "" && !validID(m.FlatOf) || m.Parent == m.ID:
		return meta{}, errors.New("an id in it cannot be one")
	case m.Bytes < 0 || m.Size < 0 || m.Files < 0:
		return meta{}, errors.New("a number in it is negative")
	case m.Hash != "" && !validHash(m.Hash):
		return meta{}, errors.New("its hash cannot be one")
	case !m.IDs.valid():
		return meta{}, errors.New("its ids make no sense")
	}
	switch m.Method {
	case Sealed, Reflinked, Copied, Imported, Flattened:
		return m, nil
	}
	return meta{}, errors.New("its method is unknown")
}

func validHash(h string) bool {
	text, ok := strings.CutPrefix(h, "sha256:")
	if !ok || len(text) != 64 || strings.ToLower(text) != text {
		return false
	}
	_, err := hex.DecodeString(text)
	return err == nil
}

// readMeta reads the description in a layer's folder dir.
func readMeta(dir string) (meta, error) {
	f, err := os.Open(filepath.Join(dir, metaName))
	if err != nil {
		return meta{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMeta+1))
	if err != nil {
		return meta{}, err
	}
	if len(b) > maxMeta {
		return meta{}, errors.New("it is too long")
	}
	return parseMeta(b)
}

// writeMeta writes the description, all or nothing. With sync it is on the disk
// when it gives no error.
func writeMeta(dir string, m meta, sync bool) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return replace(filepath.Join(dir, metaName), sync, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}

// replace writes a file beside path and then puts it there.
func replace(path string, sync bool, write func(io.Writer) error) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
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

func (m meta) layer(dir string) *Layer {
	return &Layer{ID: m.ID, Dir: filepath.Join(dir, treeName), Parent: m.Parent, Hash: m.Hash, Size: m.Size, Bytes: m.Bytes, Files: m.Files,
		Method: m.Method, FlatOf: m.FlatOf, IDs: m.IDs}
}
