package standin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

func info(path string, f file) api.FileInfo {
	return api.FileInfo{Path: path, Type: "file", Mode: fmt.Sprintf("%04o", f.mode), Size: int64(len(f.data)), ModTime: now()}
}

func (e *Engine) file(method string, who engine.Caller, ref, path string) (f file, err error) {
	_, err2 := e.set(method, who, ref, "", func(b *box) {
		var ok bool
		if f, ok = b.files[path]; !ok {
			err = bailey.Errorf(bailey.CodeNotFound, "find "+path, "", "there is no such file")
		}
	})
	if err2 != nil {
		return f, err2
	}
	return f, err
}

func (e *Engine) ReadFile(ctx context.Context, who engine.Caller, ref, path string, offset, length int64) (io.ReadCloser, api.FileInfo, error) {
	f, err := e.file("ReadFile", who, ref, path)
	if err != nil {
		return nil, api.FileInfo{}, err
	}
	data := f.data[min(offset, int64(len(f.data))):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	var r io.Reader = bytes.NewReader(data)
	if path == "/breaks" { // half-way
		r = io.MultiReader(bytes.NewReader(data[:len(data)/2]), failing{})
	}
	return io.NopCloser(r), info(path, f), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) {
	return 0, bailey.Errorf(bailey.CodeSandboxLost, "read the file", "", "the sandbox died")
}

func (e *Engine) WriteFile(ctx context.Context, who engine.Caller, ref, path string, mode uint32, r io.Reader) (api.Written, error) {
	if err := e.seen("WriteFile", ref, path); err != nil {
		return api.Written{}, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return api.Written{}, fmt.Errorf("nothing was written: %w", err)
	}
	h := sha256.Sum256(data)
	_, err = e.set("WriteFile", who, ref, "", func(b *box) { b.files[path] = file{data, mode} })
	return api.Written{Path: path, Size: int64(len(data)), SHA256: hex.EncodeToString(h[:])}, err
}

func (e *Engine) StatFile(ctx context.Context, who engine.Caller, ref, path string) (api.FileInfo, error) {
	f, err := e.file("StatFile", who, ref, path)
	if err != nil {
		return api.FileInfo{}, err
	}
	return info(path, f), nil
}

func (e *Engine) ListFiles(ctx context.Context, who engine.Caller, ref, path string, depth int, each func(api.FileInfo) error) error {
	var list []api.FileInfo
	_, err := e.set("ListFiles", who, ref, "", func(b *box) {
		for p, f := range b.files {
			if strings.HasPrefix(p, strings.TrimSuffix(path, "/")+"/") {
				list = append(list, info(p, f))
			}
		}
	})
	slices.SortFunc(list, func(x, y api.FileInfo) int { return strings.Compare(x.Path, y.Path) })
	for _, f := range list {
		if err := each(f); err != nil {
			return err
		}
		if f.Path == "/breaks" {
			return bailey.Errorf(bailey.CodeSandboxLost, "list the folder", "", "the sandbox died")
		}
	}
	return err
}

func (e *Engine) Mkdir(ctx context.Context, who engine.Caller, ref, path string, mode uint32) error {
	_, err := e.set("Mkdir", who, ref, "", func(*box) {})
	return err
}

func (e *Engine) RemoveFile(ctx context.Context, who engine.Caller, ref, path string, recursive bool) error {
	if _, err := e.file("RemoveFile", who, ref, path); err != nil {
		return err
	}
	_, err := e.set("RemoveFile", who, ref, "", func(b *box) { delete(b.files, path) })
	return err
}

func (e *Engine) MoveFile(ctx context.Context, who engine.Caller, ref, from, to string) error {
	f, err := e.file("MoveFile", who, ref, from)
	if err != nil {
		return err
	}
	_, err = e.set("MoveFile", who, ref, "", func(b *box) {
		delete(b.files, from)
		b.files[to] = f
	})
	return err
}

func (e *Engine) TarOut(ctx context.Context, who engine.Caller, ref, path string, w io.Writer) error {
	f, err := e.file("TarOut", who, ref, path)
	if err == nil {
		_, err = w.Write(f.data)
	}
	return err
}

func (e *Engine) TarIn(ctx context.Context, who engine.Caller, ref, path string, r io.Reader) (api.TarResult, error) {
	if err := e.seen("TarIn", ref, path); err != nil {
		return api.TarResult{}, err
	}
	w, err := e.WriteFile(ctx, who, ref, path, 0o644, r)
	return api.TarResult{Files: 1, Bytes: w.Size, Skipped: []string{"dev/null: a device"}}, err
}

func (e *Engine) WatchFiles(ctx context.Context, who engine.Caller, ref, path string, ready func(), each func(api.WatchEvent) error) error {
	var seen map[string]file
	for {
		var next map[string]file
		var changed chan struct{}
		_, err := e.set("WatchFiles", who, ref, "", func(b *box) {
			next = map[string]file{}
			for p, f := range b.files {
				next[p] = f
			}
			changed = e.changed
		})
		if err != nil {
			return err
		}
		if seen == nil {
			ready()
		} else {
			for p := range next {
				if _, ok := seen[p]; !ok {
					if err := each(api.WatchEvent{Path: p, Op: "create"}); err != nil {
						return err
					}
				}
			}
		}
		seen = next
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (e *Engine) SearchFiles(ctx context.Context, who engine.Caller, ref string, q api.SearchQuery) (r api.SearchResult, err error) {
	_, err = e.set("SearchFiles", who, ref, "", func(b *box) {
		for p, f := range b.files {
			if bytes.Contains(f.data, []byte(q.Text)) {
				r.Hits = append(r.Hits, api.SearchHit{Path: p, Line: 1, Text: q.Text})
			}
		}
	})
	return r, err
}

// DialPort gives a connection that answers what it hears, and closes behind it.
func (e *Engine) DialPort(ctx context.Context, ref string, port int) (net.Conn, error) {
	leave, err := e.enter("DialPort", ref, port)
	if err != nil {
		return nil, err
	}
	defer leave()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		defer l.Close()
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c) // until its end
	}()
	return net.Dial("tcp", l.Addr().String())
}
