package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Files are the files of a sandbox. Paths are absolute, inside it; relative ones
// begin at its working folder. Links never lead out of it.
type Files struct{ s *Sandbox }

// Files gives the sandbox's files.
func (s *Sandbox) Files() *Files { return &Files{s} }

// Open reads a file from offset on; length -1 is to its end. The reader checks
// what it reads by its hash: a body that was cut or changed on the way is an error
// at its end. It must be closed.
func (f *Files) Open(ctx context.Context, path string, offset, length int64) (io.ReadCloser, api.FileInfo, error) {
	q := url.Values{"path": {path}}
	if offset != 0 {
		q.Set("offset", strconv.FormatInt(offset, 10))
	}
	if length >= 0 {
		q.Set("length", strconv.FormatInt(length, 10))
	}
	resp, err := f.s.c.do(ctx, call{method: http.MethodGet, path: f.s.path("/files"), query: q, again: true})
	if err != nil {
		return nil, api.FileInfo{}, err
	}
	var info api.FileInfo
	if err := json.Unmarshal([]byte(resp.Header.Get(api.HeaderFile)), &info); err != nil {
		resp.Body.Close()
		return nil, info, bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "", "it does not say which file it sends")
	}
	return checked(resp), info, nil
}

// ReadFile reads a whole file, anew if the connection breaks.
func (f *Files) ReadFile(ctx context.Context, path string) ([]byte, error) {
	wait := newPatience(f.s.c.patience)
	for {
		r, _, err := f.Open(ctx, path, 0, -1)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		r.Close()
		if bailey.CodeOf(err) != bailey.CodeDaemonUnavailable || !wait.more(ctx) {
			return data, err
		}
	}
}

// WriteFile replaces a file, all or nothing; perm 0 is 0644.
func (f *Files) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode) (api.Written, error) {
	sum := sha256.Sum256(data)
	return f.put(ctx, path, perm, bytes.NewReader(data), int64(len(data)), hex.EncodeToString(sum[:]))
}

// Write replaces a file by all that r gives, all or nothing; perm 0 is 0644. The
// answer has the size and the hash of what is there now, and both are compared
// with what was sent.
func (f *Files) Write(ctx context.Context, path string, r io.Reader, perm fs.FileMode) (api.Written, error) {
	h := sha256.New()
	n := &counter{r: io.TeeReader(r, h)}
	w, err := f.put(ctx, path, perm, n, -1, "")
	if err == nil && (w.SHA256 != hex.EncodeToString(h.Sum(nil)) || w.Size != n.n) {
		return w, bailey.Errorf(bailey.CodeProtocol, "write "+path, "write it again", "what is there now is not what was sent")
	}
	return w, err
}

func (f *Files) put(ctx context.Context, path string, perm fs.FileMode, r io.Reader, size int64, sum string) (api.Written, error) {
	q := url.Values{"path": {path}}
	if perm != 0 {
		q.Set("mode", strconv.FormatUint(uint64(perm.Perm()), 8))
	}
	if sum != "" {
		q.Set("sha256", sum)
	}
	return ask[api.Written](ctx, f.s.c, call{method: http.MethodPut, path: f.s.path("/files"), query: q, body: r, size: size})
}

// Stat looks at a file; links are not followed.
func (f *Files) Stat(ctx context.Context, path string) (api.FileInfo, error) {
	return get[api.FileInfo](ctx, f.s.c, f.s.path("/files/stat"), url.Values{"path": {path}})
}

// List lists a folder, depth levels deep: 1 is what is in it.
func (f *Files) List(ctx context.Context, path string, depth int) iter.Seq2[api.FileInfo, error] {
	q := url.Values{"path": {path}, "depth": {strconv.Itoa(depth)}}
	return entries(ctx, f.s.c, f.s.path("/files/list"), q, func(e api.Entry) *api.FileInfo { return e.File })
}

// entries goes through a long list as it comes.
func entries[T any](ctx context.Context, c *Client, path string, q url.Values, pick func(api.Entry) *T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		complete := false
		err := c.lines(ctx, call{method: http.MethodGet, path: path, query: q, again: true}, func(b []byte) error {
			e, err := decode[api.Entry](b)
			switch v := pick(e); {
			case err != nil:
				return err
			case e.Error != nil:
				return e.Error
			case v == nil:
				return nil
			case !yield(*v, nil):
				complete = true
				return errEnded
			}
			return nil
		})
		if err != nil && !complete {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			} else if err == errBroken {
				err = c.unavailable(err)
			}
			var none T
			yield(none, err)
		}
	}
}

// Mkdir makes a folder and those above it; perm 0 is 0755.
func (f *Files) Mkdir(ctx context.Context, path string, perm fs.FileMode) error {
	req := api.MkdirRequest{Path: path}
	if perm != 0 {
		req.Mode = strconv.FormatUint(uint64(perm.Perm()), 8)
	}
	return f.s.c.json(ctx, call{method: http.MethodPost, path: f.s.path("/files/mkdir"), in: req, again: true}, nil)
}

// Remove removes a file or folder; one with content only if recursive.
func (f *Files) Remove(ctx context.Context, path string, recursive bool) error {
	return f.s.c.remove(ctx, f.s.path("/files"), url.Values{"path": {path}, "recursive": {strconv.FormatBool(recursive)}})
}

// Move renames a file or folder.
func (f *Files) Move(ctx context.Context, from, to string) error {
	return f.s.c.json(ctx, call{method: http.MethodPost, path: f.s.path("/files/move"), in: api.MoveRequest{From: from, To: to}}, nil)
}

// Search finds files and lines.
func (f *Files) Search(ctx context.Context, q api.SearchQuery) (api.SearchResult, error) {
	return post[api.SearchResult](ctx, f.s.c, f.s.path("/files/search"), q)
}

// TarOut gives path as a tar archive. The reader must be closed; one that ends
// without an error has given all.
func (f *Files) TarOut(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := f.s.c.do(ctx, call{method: http.MethodGet, path: f.s.path("/archive"), query: url.Values{"path": {path}}, again: true})
	if err != nil {
		return nil, err
	}
	return checked(resp), nil
}

// TarIn unpacks an archive, plain or gzip, into the folder path.
func (f *Files) TarIn(ctx context.Context, path string, r io.Reader) (api.TarResult, error) {
	return ask[api.TarResult](ctx, f.s.c, call{method: http.MethodPut, path: f.s.path("/archive"), query: url.Values{"path": {path}}, body: r, size: -1})
}

// Watch calls each with what changes at and below path until ctx ends or each
// gives an error. ready, which may be nil, is called once nothing can be missed
// any more. A broken connection is an error: what happened meanwhile is not known.
func (f *Files) Watch(ctx context.Context, path string, ready func(), each func(api.WatchEvent) error) error {
	err := f.s.c.lines(ctx, call{method: http.MethodGet, path: f.s.path("/files/watch"), query: url.Values{"path": {path}}, again: true}, func(b []byte) error {
		ev, err := decode[api.WatchLine](b)
		switch {
		case err != nil:
			return err
		case ev.Error != nil:
			return ev.Error
		case ev.Ready:
			if ready != nil {
				ready()
			}
			return nil
		case ev.Event == nil:
			return nil
		}
		return each(*ev.Event)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil || err == errBroken {
		err = f.s.c.unavailable(errBroken)
	}
	return err
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
