package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// stalled is how long a client may send nothing of a body.
const stalled = 60 * time.Second

// upload is an input whose body is read as it comes. It knows the cap, and the
// hash that the body shall have, if the client has named one.
type upload struct {
	// Body has another name so that huma does not read it.
	r     io.Reader
	rc    *http.ResponseController
	size  int64 // as announced, -1 unknown
	limit int64 // 0: none
	n     int64
	hash  hash.Hash
	want  string
	err   error // ours, which the engine may have wrapped in words of its own
}

// Resolve implements huma.Resolver.
func (u *upload) Resolve(c huma.Context) []error {
	r, w := humago.Unwrap(c)
	u.r, u.size, u.rc = r.Body, r.ContentLength, http.NewResponseController(w)
	return nil
}

// begin checks what is announced. want is a hash in hex, or "".
func (u *upload) begin(limit int64, want string) error {
	u.limit, u.want = limit, want
	if limit > 0 && u.size > limit {
		return u.over()
	}
	if want != "" {
		u.hash = sha256.New()
	}
	return nil
}

func (u *upload) over() error {
	u.err = &LimitError{
		Err:   bailey.Errorf(bailey.CodeTooLarge, "take the upload", "send less, or have max_upload raised", "it is larger than %d bytes, which is this daemon's max_upload", u.limit),
		Limit: u.limit, How: "raise max_upload in the daemon's configuration, or send the content in parts",
	}
	return u.err
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	u.rc.SetReadDeadline(time.Now().Add(stalled)) // every connection of ours can
	n, err := u.r.Read(p)
	u.n += int64(n)
	if u.limit > 0 && u.n > u.limit {
		return 0, u.over()
	}
	if u.hash != nil {
		u.hash.Write(p[:n])
		if err == io.EOF && hex.EncodeToString(u.hash.Sum(nil)) != u.want {
			u.err = bailey.Errorf(bailey.CodeConflict, "take the upload", "send it again", "what arrived does not have the hash that was named; nothing was written")
			return n, u.err
		}
	}
	return n, err
}

// end gives the error to answer with: what went wrong here says more than what
// the engine made of it.
func (u *upload) end(err error) error {
	u.rc.SetReadDeadline(time.Time{})
	if err != nil && u.err != nil {
		return u.err
	}
	return err
}

// watched is the body of a request whose client sends it once it is asked to.
type watched struct {
	io.ReadCloser
	open atomic.Bool // the client has been asked, and the end has not been read
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.open.Store(err == nil)
	return n, err
}

// lingering is how long a client has for an answer that comes while it still sends.
const lingering = 500 * time.Millisecond

// linger takes the rest of a body that nobody reads any more, behind the answer.
// The connection is closed then, and a client that is sending would find it broken
// before it has read why. Of bodies that were not asked for, the server sees to
// that itself.
func (b *watched) linger(rc *http.ResponseController) {
	rc.SetReadDeadline(time.Now().Add(lingering))
	if rc.Flush() == nil {
		io.Copy(io.Discard, b.ReadCloser) // what is left is of no use
	}
}

// download answers with bytes as they come. Behind them is their hash, or the
// error that ended them.
type download struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	hash    hash.Hash
	begun   bool
	headers http.Header // set at the first byte
	last    time.Time
}

// send answers with what run writes. An error before the first byte is the answer.
func (s *Server) send(c huma.Context, contentType string, run func(ctx context.Context, d *download) error) {
	_, w := humago.Unwrap(c)
	d := &download{w: w, rc: http.NewResponseController(w), hash: sha256.New(), headers: http.Header{"Content-Type": {contentType}}}
	defer d.rc.SetWriteDeadline(time.Time{})
	ctx, cancel := s.streaming(c.Context())
	defer cancel()
	err := run(ctx, d)
	if err != nil && !d.begun {
		WriteProblem(w, err)
		return
	}
	d.begin()
	switch {
	case err == nil:
		w.Header().Set(api.HeaderSHA256, hex.EncodeToString(d.hash.Sum(nil)))
	case ctx.Err() != nil:
		panic(http.ErrAbortHandler) // so that it does not look complete
	default:
		text, _ := json.Marshal(newProblem(err).Err()) // it has only texts
		w.Header().Set(api.HeaderError, string(text))
	}
}

func (d *download) begin() {
	if d.begun {
		return
	}
	d.begun = true
	h := d.w.Header()
	for k, v := range d.headers {
		h[k] = v
	}
	h.Set("Trailer", fmt.Sprintf("%s, %s", api.HeaderSHA256, api.HeaderError))
	h.Set("Cache-Control", "no-store")
	// What a sandbox has written is never a page of ours.
	h.Set("Content-Disposition", "attachment")
	h.Set("X-Content-Type-Options", "nosniff")
	d.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer.
func (d *download) Write(p []byte) (int, error) {
	d.begin()
	if now := time.Now(); now.Sub(d.last) > slow/4 {
		d.last = now
		d.rc.SetWriteDeadline(now.Add(slow))
	}
	d.hash.Write(p)
	return d.w.Write(p)
}

// flush sends what has been written.
func (d *download) flush() error {
	d.begin()
	return d.rc.Flush()
}
