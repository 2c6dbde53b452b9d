package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// ReadFile reads a regular file from offset on, through links; length -1 is to its
// end. The reader must be closed; its error after the data is the request's.
func (e *Engine) ReadFile(ctx context.Context, who Caller, ref, p string, offset, length int64) (io.ReadCloser, api.FileInfo, error) {
	const what = "read a file in the sandbox"
	if offset < 0 || length < -1 {
		return nil, api.FileInfo{}, bailey.Errorf(bailey.CodeUsage, what, "", "bytes %d to %d are no part of a file", offset, length)
	}
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return nil, api.FileInfo{}, err
	}
	p = f.path(p)
	opt := guest.ReadOptions{User: f.gen.user, Offset: offset, Length: max(length, 0)}
	if length == 0 {
		opt.Length = 1 // 0 is to the end there; nothing of it is read
	}
	r, info, err := f.client.ReadFile(f.ctx, p, opt)
	if err != nil {
		defer f.end()
		return nil, api.FileInfo{}, f.failed(ctx, what, err)
	}
	return &fileReader{f: f, ctx: ctx, r: r, none: length == 0}, infoOf(p, info), nil
}

// fileReader is a file being read.
type fileReader struct {
	f    *filing
	ctx  context.Context
	r    io.ReadCloser
	none bool
	once sync.Once
	err  error
}

func (r *fileReader) Read(p []byte) (int, error) {
	if r.none {
		return 0, io.EOF
	}
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		err = r.f.failed(r.ctx, "read a file in the sandbox", err)
	}
	return n, err
}

func (r *fileReader) Close() error {
	r.once.Do(func() {
		r.err = r.r.Close()
		r.f.end()
	})
	return r.err
}

// WriteFile replaces a file with what r gives, all or nothing; folders above it
// are made. mode 0 keeps that of the file that is replaced, else 0644. The answer
// has what is there now, which was compared with what was sent.
func (e *Engine) WriteFile(ctx context.Context, who Caller, ref, p string, mode uint32, r io.Reader) (out api.Written, err error) {
	const what = "write a file in the sandbox"
	if mode&^0o7777 != 0 {
		return api.Written{}, bailey.Errorf(bailey.CodeUsage, what, "use 0 to 07777", "%o is no mode", mode)
	}
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return api.Written{}, err
	}
	defer f.end()
	p = f.path(p)
	ended, err := f.record(who, "write", p, "")
	if err != nil {
		return api.Written{}, err
	}
	defer func() { ended(out.Size, out.SHA256, err) }()
	sent := &counted{r: r, sum: sha256.New()}
	w, err := f.client.WriteFile(f.ctx, p, sent, guest.WriteOptions{User: f.gen.user, Mode: mode, Parents: true})
	if sent.err != nil {
		return api.Written{}, sent.err // of whoever sends it
	}
	if err != nil {
		return api.Written{}, f.failed(ctx, what, err)
	}
	if w.Size != sent.n || !bytes.Equal(w.SHA256[:], sent.sum.Sum(nil)) {
		return api.Written{}, bailey.Errorf(bailey.CodeProtocol, what, "treat the sandbox as lost", "what it says to have written is not what was sent")
	}
	return api.Written{Path: infoOf(p, guest.FileInfo{}).Path, Size: w.Size, SHA256: hex.EncodeToString(w.SHA256[:])}, nil
}

// counted counts and hashes what is read through it, and remembers why it ended.
type counted struct {
	r   io.Reader
	sum hash.Hash
	n   int64
	err error // but io.EOF
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.sum != nil {
		c.sum.Write(p[:n])
	}
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}
