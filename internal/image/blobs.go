package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/bailey-sandbox/bailey"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// Bounds of an image's documents, in bytes: the registry protocol allows
// manifests of 4 MiB; configurations hold a history and are larger.
const (
	maxManifest = 4 << 20
	maxConfig   = 8 << 20
)

// blobs is a set of named files: an image layout as a folder or in a tar.
type blobs interface {
	// open gives a file and its size in bytes. A name that is not there is
	// fs.ErrNotExist.
	open(name string) (io.ReadCloser, int64, error)
}

// folderBlobs reads below a folder. Links that lead out of it are refused by
// os.Root; what is no regular file cannot make us wait.
type folderBlobs struct{ root *os.Root }

func (b folderBlobs) open(name string) (io.ReadCloser, int64, error) {
	f, err := b.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New(name + " is not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// maxArchiveEntries bounds the index of an archive of images: a layer has
// three entries at most.
const maxArchiveEntries = 100_000

// tarBlobs reads the files of an uncompressed tar in place.
type tarBlobs struct {
	r     io.ReaderAt
	files map[string]section
	links map[string]string
}

type section struct{ off, size int64 }

func indexTar(r io.ReaderAt, size int64) (*tarBlobs, error) {
	b := &tarBlobs{r: r, files: map[string]section{}, links: map[string]string{}}
	sr := io.NewSectionReader(r, 0, size)
	tr := tar.NewReader(sr)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			return b, nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, imageInvalid("the archive cannot be read: %w", err)
		}
		if n >= maxArchiveEntries {
			return nil, imageInvalid("the archive has more than %d entries", maxArchiveEntries)
		}
		name := path.Clean("/" + h.Name)[1:]
		delete(b.files, name)
		delete(b.links, name)
		switch h.Typeflag {
		case tar.TypeReg:
			at, err := sr.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			if h.Size > size-at {
				return nil, imageInvalid("the archive ends inside %q", name)
			}
			b.files[name] = section{at, h.Size}
		case tar.TypeSymlink: // old archives store equal layers once
			b.links[name] = path.Clean("/" + path.Join(path.Dir(name), h.Linkname))[1:]
		case tar.TypeLink:
			b.links[name] = path.Clean("/" + h.Linkname)[1:]
		}
	}
}

func (b *tarBlobs) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean("/" + name)[1:]
	for range 8 {
		if s, ok := b.files[name]; ok {
			return io.NopCloser(io.NewSectionReader(b.r, s.off, s.size)), s.size, nil
		}
		next, ok := b.links[name]
		if !ok {
			break
		}
		name = next
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// readAll reads a small file.
func readAll(b blobs, name string, limit int64) ([]byte, error) {
	r, size, err := b.open(name)
	if err != nil {
		return nil, imageInvalid("%s cannot be read: %w", name, err)
	}
	defer r.Close()
	if size > limit {
		return nil, imageInvalid("%s is %d bytes long, more than the %d that any image needs", name, size, limit)
	}
	got, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil {
		return nil, imageInvalid("%s cannot be read: %w", name, err)
	}
	if int64(len(got)) != size {
		return nil, imageInvalid("%s changed while it was read", name)
	}
	return got, nil
}

func blobName(h v1.Hash) (string, error) {
	if h.Algorithm != "sha256" || !isDigest(h.Hex) {
		return "", imageInvalid("the digest %.100q is not a sha256", h.String())
	}
	return "blobs/sha256/" + h.Hex, nil
}

// readBlob reads a small blob and checks it against its descriptor.
func readBlob(b blobs, d v1.Descriptor, limit int64) ([]byte, error) {
	name, err := blobName(d.Digest)
	if err != nil {
		return nil, err
	}
	got, err := readAll(b, name, limit)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(got)
	if hex.EncodeToString(sum[:]) != d.Digest.Hex || int64(len(got)) != d.Size {
		return nil, imageInvalid("%s is not what the image says: its digest is sha256:%x, its size %d and not %d", name, sum, len(got), d.Size)
	}
	return got, nil
}

// layerBlob opens a layer whose compressed form is checked against its
// descriptor while it is unpacked.
func layerBlob(b blobs, d v1.Descriptor) (input, error) {
	name, err := blobName(d.Digest)
	if err != nil {
		return input{}, err
	}
	r, size, err := b.open(name)
	if err != nil {
		return input{}, imageInvalid("the layer %s cannot be read: %w", name, err)
	}
	if size != d.Size {
		r.Close()
		return input{}, imageInvalid("the layer %s is %d bytes long where the image says %d", name, size, d.Size)
	}
	h := &hashed{r: r, sum: sha256.New()}
	return input{Reader: h, close: func() { r.Close() }, verify: func() error { return h.check(name, d.Digest.Hex) }}, nil
}

type hashed struct {
	r   io.Reader
	sum hash.Hash
}

func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.sum.Write(p[:n])
	return n, err
}

// check reads what the decompressor left, too.
func (h *hashed) check(name, want string) error {
	if _, err := io.Copy(io.Discard, h); err != nil {
		return imageInvalid("the layer %s cannot be read: %w", name, err)
	}
	if got := hex.EncodeToString(h.sum.Sum(nil)); got != want {
		return imageInvalid("the layer %s has digest sha256:%s", name, got)
	}
	return nil
}

func imageInvalid(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeImageInvalid, "read the image", "fetch or build the image again, or name another source", format, args...)
}

// cleanText is for names from an image that appear in messages.
func cleanText(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s), "?")
}
