package engine

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"syscall"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// TarOut writes the file or folder at path as an archive (POSIX pax) with names
// relative to it. Sockets, which mean nothing elsewhere, are left out; else all is
// in it, ignored files and attributes too, or there is an error, and what w has got
// is no whole archive.
func (e *Engine) TarOut(ctx context.Context, who Caller, ref, p string, w io.Writer) error {
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return err
	}
	defer f.end()
	out := &writing{w: w}
	err = f.client.TarOut(f.ctx, f.path(p), out, guest.TarOptions{User: f.gen.user, Xattrs: true})
	if out.err != nil {
		return out.err
	}
	return f.failed(ctx, "pack files of the sandbox", err)
}

// writing remembers why it could not be written any more.
type writing struct {
	w   io.Writer
	err error
}

func (w *writing) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

// TarIn unpacks an archive, plain or gzip, into the folder path, which is made.
// What has the name of an entry is replaced. An entry that cannot be made is an
// error: nothing is skipped. What came before it is there then.
func (e *Engine) TarIn(ctx context.Context, who Caller, ref, p string, r io.Reader) (_ api.TarResult, err error) {
	const what = "unpack files into the sandbox"
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return api.TarResult{}, err
	}
	defer f.end()
	sent := &counted{r: r}
	ended, err := f.record(who, "unpack", f.path(p), "")
	if err != nil {
		return api.TarResult{}, err
	}
	defer func() { ended(sent.n, "", err) }()
	plain, err := unzipped(sent)
	if err != nil {
		if sent.err != nil {
			err = sent.err
		}
		return api.TarResult{}, err
	}
	seen := newCounter()
	in := &counted{r: io.TeeReader(plain, seen)}
	err = f.client.TarIn(f.ctx, f.path(p), in, guest.TarOptions{User: f.gen.user, Xattrs: true})
	result := seen.close()
	switch {
	case sent.err != nil:
		return api.TarResult{}, sent.err
	case in.err != nil:
		return api.TarResult{}, bailey.Errorf(bailey.CodeUsage, what, "", "the archive cannot be read: %w", in.err)
	}
	return result, f.failed(ctx, what, err)
}

// unzipped gives what r holds, unpacked if it begins as gzip does.
func unzipped(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(head) < 2 || head[0] != 0x1f || head[1] != 0x8b {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeUsage, "unpack files into the sandbox", "", "the archive cannot be read: %w", err)
	}
	return z, nil
}

// counter counts the entries of an archive that passes.
type counter struct {
	w    *io.PipeWriter
	done chan api.TarResult
}

func newCounter() *counter {
	r, w := io.Pipe()
	c := &counter{w: w, done: make(chan api.TarResult, 1)}
	go func() {
		var n api.TarResult
		for t := tar.NewReader(r); ; {
			h, err := t.Next()
			if err != nil {
				break
			}
			switch h.Typeflag {
			case tar.TypeDir, tar.TypeXGlobalHeader:
			default:
				n.Files++
				n.Bytes += h.Size
			}
		}
		io.Copy(io.Discard, r)
		c.done <- n
	}()
	return c
}

func (c *counter) Write(p []byte) (int, error) { return c.w.Write(p) }

func (c *counter) close() api.TarResult {
	c.w.Close()
	return <-c.done
}

// MoveFile renames a file or folder, over a file that is there. To another file
// system inside it is copied and then removed.
func (e *Engine) MoveFile(ctx context.Context, who Caller, ref, from, to string) error {
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return err
	}
	defer f.end()
	from, to = f.path(from), f.path(to)
	ended, err := f.record(who, "move", from, to)
	if err != nil {
		return err
	}
	defer func() { ended(0, "", err) }()
	err = f.client.Rename(f.ctx, from, to, f.gen.user)
	if errors.Is(err, syscall.EXDEV) {
		// A folder of a lower layer is one, too: overlayfs leaves that to us.
		err = f.moveFar(from, to)
	}
	return f.failed(ctx, "move a file in the sandbox", err)
}

// moveFar copies what is to be moved beside its place, puts it there, and removes
// it where it was.
func (f *filing) moveFar(from, to string) (err error) {
	user := f.gen.user
	info, err := f.client.Lstat(f.ctx, from, user)
	if err != nil {
		return err
	}
	if k := typeOf(info.Mode); k != "file" && k != "dir" {
		return bailey.Errorf(bailey.CodeUsage, "move a file in the sandbox", "make it anew there", "a %s is not moved to another file system", k)
	}
	var b [12]byte
	rand.Read(b[:])
	aside := path.Join(path.Dir(path.Clean(to)), ".bailey-"+hex.EncodeToString(b[:]))
	if err := f.client.Mkdir(f.ctx, aside, 0o700, false, user); err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(f.ctx)
		if rerr := f.client.Remove(ctx, aside, true, user); rerr != nil && bailey.CodeOf(rerr) != bailey.CodeNotFound && err == nil {
			err = rerr
		}
	}()
	copied := path.Join(aside, "folder")
	if !info.IsDir() {
		copied = path.Join(aside, path.Base(from))
	}
	into := aside
	if info.IsDir() {
		into = copied
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := f.client.TarOut(f.ctx, from, w, guest.TarOptions{User: user, Xattrs: true})
		w.CloseWithError(err)
		packed <- err
	}()
	err = f.client.TarIn(f.ctx, into, r, guest.TarOptions{User: user, Xattrs: true})
	r.CloseWithError(io.ErrClosedPipe)
	if perr := <-packed; perr != nil && err != nil && !errors.Is(perr, io.ErrClosedPipe) {
		err = perr
	}
	if err != nil {
		return err
	}
	if err := f.client.Rename(f.ctx, copied, to, user); err != nil {
		return err
	}
	return f.client.Remove(f.ctx, from, true, user)
}
