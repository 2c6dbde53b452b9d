package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"golang.org/x/sys/unix"
)

// archiveName is what an archive of images begins with, by whichever program
// it was written: docker save (old and new), skopeo, crane, buildkit. A root
// file system begins with none of these, so one look decides whether a stream
// can be unpacked as it comes or has to be kept for reading in any order.
var archiveName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(blobs|oci-layout|index\.json|manifest\.json|repositories|(sha256[:_-])?[0-9a-f]{64})($|[/.])`)
})

// archive prepares a tar, whatever it is a tar of.
func (s *Store) archive(ctx context.Context, name string, sel selection, source string) (rootfs.Root, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return rootfs.Root{}, imageInvalid("%w", err)
	}
	defer f.Close()
	key, settled, err := sourceKey(f, name, sel)
	if err != nil {
		return rootfs.Root{}, imageInvalid("%w", err)
	}
	var cached sourceRecord
	if s.readJSON("sources", key, &cached) {
		if r, ok := s.known(cached.Image); ok {
			return s.root(r, source, true), nil
		}
	}
	root, err := s.readArchive(ctx, f, sel, source)
	if err != nil {
		return root, err
	}
	if again, _, err := sourceKey(f, name, sel); err != nil || again != key {
		return root, bailey.Errorf(bailey.CodeConflict, "read the image", "try again when nothing writes it", "%s changed while it was read", source)
	}
	if settled {
		if err := s.writeJSON("sources", key, sourceRecord{Image: root.Digest[len("sha256:"):]}); err != nil {
			return root, storage("remember the image's source", err)
		}
	}
	return root, nil
}

// sourceRecord is sources/<key>.json.
type sourceRecord struct {
	Image string `json:"image"` // digest in hex
}

// settling is how long a file must be left alone before its times can tell
// that it has not changed: more than the tick of any kernel's coarse clock
// (10 ms at HZ=100).
const settling = 20 * time.Millisecond

// sourceKey names the content of an open file by what the kernel changes with
// it. settled says that this can be relied on later: a file written within the
// last tick is waited for, one from the future (another machine's clock) is
// not trusted.
func sourceKey(f *os.File, name string, sel selection) (key string, settled bool, err error) {
	var st unix.Stat_t
	for range 2 {
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return "", false, err
		}
		age := time.Since(time.Unix(st.Ctim.Sec, st.Ctim.Nsec))
		if settled = age >= settling; settled || age < 0 {
			break
		}
		time.Sleep(settling - age)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", false, errors.New(name + " is not a regular file")
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", false, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "1 %d %d %d %d %d %d %d %q %q", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec, abs, sel.String())
	return hex.EncodeToString(h.Sum(nil)), settled, nil
}

func (s *Store) readArchive(ctx context.Context, f *os.File, sel selection, source string) (rootfs.Root, error) {
	first, err := s.firstName(ctx, f)
	if err != nil {
		return rootfs.Root{}, err
	}
	if archiveName().MatchString(first) {
		plain, size, done, err := s.plainTar(ctx, f)
		if err != nil {
			return rootfs.Root{}, err
		}
		defer done()
		b, err := indexTar(plain, size)
		if err != nil {
			return rootfs.Root{}, err
		}
		if b.has("oci-layout") && b.has("index.json") {
			return s.layout(ctx, b, sel, source)
		}
		if b.has("manifest.json") {
			return s.dockerArchive(ctx, b, sel, source)
		}
	}
	if sel != (selection{}) {
		return rootfs.Root{}, bailey.Errorf(bailey.CodeUsage, "read the image", "name the tar alone", "it is one root file system, not an archive with images to choose from")
	}
	rec, err := s.assemble(ctx, imageRecord{Kind: rootfs.KindTar}, []part{{open: func() (input, error) {
		return input{Reader: fromStart(f), close: func() {}}, nil
	}}})
	if err != nil {
		return rootfs.Root{}, err
	}
	return s.root(rec, source, false), nil
}

func (b *tarBlobs) has(name string) bool {
	r, _, err := b.open(name)
	if err == nil {
		r.Close()
	}
	return err == nil
}

func fromStart(f *os.File) io.Reader { return io.NewSectionReader(f, 0, 1<<62) }

// firstName gives the clean name of the first entry that has one.
func (s *Store) firstName(ctx context.Context, f *os.File) (string, error) {
	stream, err := unpack.NewStream(ctx, fromStart(f), s.limits)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	tr := tar.NewReader(stream)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return "", imageInvalid("it is a tar without entries, or no tar")
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			var own *bailey.Error
			if errors.As(err, &own) || ctx.Err() != nil {
				return "", err
			}
			return "", imageInvalid("it is no tar that can be read: %w", err)
		}
		if name := path.Clean("/" + h.Name); name != "/" && h.Typeflag != tar.TypeXGlobalHeader {
			return name[1:], nil
		}
	}
}

// plainTar gives the tar for reading in any order. A compressed one is
// unpacked beside the store's other work first.
func (s *Store) plainTar(ctx context.Context, f *os.File) (io.ReaderAt, int64, func(), error) {
	stream, err := unpack.NewStream(ctx, fromStart(f), s.limits)
	if err != nil {
		return nil, 0, nil, err
	}
	defer stream.Close()
	if stream.Plain() {
		st, err := f.Stat()
		if err != nil {
			return nil, 0, nil, imageInvalid("%w", err)
		}
		return f, st.Size(), func() {}, nil
	}
	bench, err := s.bench()
	if err != nil {
		return nil, 0, nil, storage("unpack the archive", err)
	}
	tmp, err := os.OpenFile(bench.path("archive"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		bench.remove()
		return nil, 0, nil, storage("unpack the archive", err)
	}
	done := func() { tmp.Close(); bench.remove() }
	n, err := io.Copy(tmp, stream)
	if err != nil {
		done()
		return nil, 0, nil, storage("unpack the archive", err)
	}
	return tmp, n, done, nil
}
