package kit

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// FileName is the kit's name beside Bailey's programs.
const FileName = "bailey-microvm.kit"

// Manifest says what a kit is. It is the kit's first entry.
type Manifest struct {
	Version int    `json:"version"`
	Kernel  string `json:"kernel"`  // its release
	Monitor string `json:"monitor"` // the path of the monitor below monitor/
	Digest  string `json:"digest"`  // of all that follows
}

// Version is the one of kits that this build makes and opens.
const Version = 1

// Kit is a kit that lies unpacked in a folder.
type Kit struct {
	Manifest
	Dir string
}

// Vmlinux and the others are paths in it. Root is a folder that is the root of a
// file system with the monitor and nothing else.
func (k *Kit) Vmlinux() string   { return filepath.Join(k.Dir, "vmlinux") }
func (k *Kit) Initramfs() string { return filepath.Join(k.Dir, "initramfs") }
func (k *Kit) Root() string      { return filepath.Join(k.Dir, "monitor") }

// Read reads the manifest of the kit in a file. A kit that is not there is
// isolation_unavailable.
func Read(from string) (Manifest, error) {
	f, err := os.Open(from)
	if err != nil {
		return Manifest{}, missing(err)
	}
	defer f.Close()
	_, m, err := manifestOf(f)
	return m, err
}

const fix = "run ./scripts/levels in Bailey's sources and put bin/" + FileName + " beside the programs"

func missing(err error) error {
	return bailey.Errorf(bailey.CodeIsolationUnavailable, "find the kernel and the monitor of virtual machines", fix, "%w", err)
}

func manifestOf(r io.Reader) (*tar.Reader, Manifest, error) {
	var m Manifest
	t := tar.NewReader(r)
	h, err := t.Next()
	if err != nil || h.Name != "manifest.json" || h.Size > 1<<20 {
		return nil, m, missing(fmt.Errorf("the file is no kit: %w", err))
	}
	b, err := io.ReadAll(t)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err == nil && (m.Version != Version || len(m.Digest) != 64 || strings.ContainsAny(m.Digest, "/.")) {
		err = errors.New("it is of another version")
	}
	if err != nil {
		return nil, m, missing(fmt.Errorf("the kit's manifest: %w", err))
	}
	return t, m, nil
}

// Open unpacks the kit in a file to a folder of its own below dir, unless it lies
// there already.
func Open(from, dir string) (*Kit, error) {
	f, err := os.Open(from)
	if err != nil {
		return nil, missing(err)
	}
	defer f.Close()
	t, m, err := manifestOf(f)
	if err != nil {
		return nil, err
	}
	k := &Kit{m, filepath.Join(dir, m.Digest[:32])}
	if _, err := os.Stat(k.Dir); err == nil {
		return k, nil
	}
	if err := unpack(t, k.Dir); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "unpack the kernel and the monitor of virtual machines", "", "%w", err)
	}
	return k, nil
}

// unpack writes what follows the manifest and compares the digest.
func unpack(t *tar.Reader, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	sum := sha256.New()
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(h.Name) || h.Typeflag != tar.TypeReg {
			return fmt.Errorf("%q is no file of a kit", h.Name)
		}
		fmt.Fprintf(sum, "%s %o %d\n", h.Name, h.Mode, h.Size)
		p := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.MultiWriter(f, sum), t)
		if err := errors.Join(err, f.Chmod(fs.FileMode(h.Mode)&0o755), f.Close()); err != nil {
			return err
		}
	}
	want := filepath.Base(to)
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.HasPrefix(got, want) {
		return errors.New("the kit is damaged: its digest is another one")
	}
	for _, name := range []string{"proc", "dev", "run", "tmp"} { // to mount on
		if err := os.MkdirAll(filepath.Join(dir, "monitor", name), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Rename(dir, to); err != nil && !errors.Is(err, fs.ErrExist) && err != unix.ENOTEMPTY {
		return err
	}
	return nil
}
