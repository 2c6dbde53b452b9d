package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/bailey-sandbox/bailey"
)

// Blob fetches a blob into f, a file that may hold the beginning of it from an
// earlier try: that is not fetched again. done is told how many bytes there are.
// On an error that may pass, f keeps what has come; when the content turns out to
// be wrong, f is emptied.
func (r *Repository) Blob(ctx context.Context, d v1.Descriptor, f *os.File, done func(int64)) error {
	w := &download{repo: r, want: d, f: f, sum: sha256.New(), done: done}
	if err := w.begin(); err != nil {
		return disk(err)
	}
	err := w.fetch(ctx)
	if err == nil {
		err = w.check()
	}
	if bailey.CodeOf(err) == bailey.CodeImageInvalid {
		if terr := f.Truncate(0); terr != nil {
			return disk(terr)
		}
	}
	return err
}

type download struct {
	repo *Repository
	want v1.Descriptor
	f    *os.File
	have int64
	sum  hash.Hash
	done func(int64)
}

// begin takes up what is in the file.
func (w *download) begin() (err error) {
	if _, err = w.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if w.have, err = io.Copy(w.sum, w.f); err != nil {
		return err
	}
	if w.have > w.want.Size {
		return w.restart()
	}
	w.done(w.have)
	return nil
}

func (w *download) restart() error {
	w.have = 0
	w.sum.Reset()
	w.done(0)
	if err := w.f.Truncate(0); err != nil {
		return err
	}
	_, err := w.f.Seek(0, io.SeekStart)
	return err
}

// fetch asks until all has come. A try that brought something is no failed one.
func (w *download) fetch(ctx context.Context) (err error) {
	for _, p := range w.repo.places {
		for n := 1; w.have < w.want.Size; n++ {
			before := w.have
			if err = w.once(ctx, p); err == nil {
				continue
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if w.have > before {
				n = 1
			}
			if !again(err) || n == attempts {
				break
			}
			if werr := w.repo.client.wait(ctx, n); werr != nil {
				return werr
			}
		}
		if w.have == w.want.Size || bailey.CodeOf(err) == bailey.CodeStorage || bailey.CodeOf(err) == bailey.CodeDiskFull {
			break
		}
	}
	if w.have == w.want.Size {
		return nil
	}
	return err
}

// once makes one request and takes what comes.
func (w *download) once(ctx context.Context, p *place) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive := time.AfterFunc(w.repo.client.stall, cancel)
	defer alive.Stop()
	resp, err := w.repo.get(large(ctx), p, "blobs", w.want.Digest.String(), w.have)
	if err != nil {
		return stalled(p, err)
	}
	defer resp.Body.Close()
	if w.have > 0 && !continues(resp, w.have) {
		// It does not go on where we are: from the beginning, with this answer
		// where it is one.
		if err := w.restart(); err != nil {
			return disk(err)
		}
		if resp.StatusCode != http.StatusOK {
			return unavailable(p.repo.RegistryStr(), errors.New("it does not go on with a download"))
		}
	}
	buf := make([]byte, 128<<10)
	for {
		n, err := resp.Body.Read(buf)
		alive.Reset(w.repo.client.stall)
		if int64(n) > w.want.Size-w.have {
			return malformed("the blob %s is longer than the %d bytes that the image says", w.want.Digest, w.want.Size)
		}
		if n > 0 {
			if _, werr := w.f.Write(buf[:n]); werr != nil {
				return disk(werr)
			}
			w.sum.Write(buf[:n])
			w.have += int64(n)
			w.done(w.have)
		}
		if err == io.EOF {
			if w.have < w.want.Size {
				return unavailable(p.repo.RegistryStr(), fmt.Errorf("the download ended after %d of %d bytes", w.have, w.want.Size))
			}
			return nil
		}
		if err != nil {
			return stalled(p, err)
		}
	}
}

// stalled makes our own giving up an error that may pass.
func stalled(p *place, err error) error {
	var own *bailey.Error
	if errors.As(err, &own) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("nothing came for too long")
	}
	return unavailable(p.repo.RegistryStr(), err)
}

// continues says whether an answer begins at byte from.
func continues(r *http.Response, from int64) bool {
	return r.StatusCode == http.StatusPartialContent && strings.HasPrefix(r.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from))
}

func (w *download) check() error {
	if got := hex.EncodeToString(w.sum.Sum(nil)); w.want.Digest.Algorithm != "sha256" || got != w.want.Digest.Hex {
		return malformed("the blob %s came with the digest sha256:%s", w.want.Digest, got)
	}
	return nil
}

func disk(err error) error {
	return bailey.Errorf(bailey.CodeStorage, "keep the image", "see that the data folder has room and is writable", "%w", err)
}
