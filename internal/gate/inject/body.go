package inject

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
)

// How much of a body is read before it is sent.
const (
	// maxBody bounds bodies in which values are put or that are decoded, in bytes
	// as sent and as decoded.
	maxBody = 8 << 20
	// maxWhole bounds bodies that are read whole only to be searched: a placeholder
	// in one is found before the request goes. Larger ones are searched while they
	// are sent.
	maxWhole = 256 << 10
)

// body puts values into the body, or has it searched while it is sent.
func (j *job) body(r *http.Request, whole bool) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if len(r.Header["Content-Type"]) > 1 {
		return refused(Unreadable, "the body has more than one Content-Type, of which servers take one or another")
	}
	kind := mediaType(r.Header.Get("Content-Type"))
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	isForm := kind == "application/x-www-form-urlencoded"
	coding := codings(r.Header)
	var may func(*pattern) bool
	if isJSON && !j.any(inJSON) {
		may = j.quotes
	}
	fill := isJSON && j.any(inJSON) || isForm && (j.pinned || j.any(inForm))
	small := r.ContentLength >= 0 && r.ContentLength <= maxWhole || strings.HasPrefix(kind, "multipart/") && r.ContentLength >= 0 && r.ContentLength <= maxBody
	if !fill && !small && !whole && len(coding) == 0 {
		r.Body = j.scan.guard(r.Body, r, may)
		return nil
	}
	raw, err := readUpTo(j.ctx, r.Body, r.ContentLength, maxBody)
	if errors.Is(err, errTooMuch) {
		if len(coding) > 0 || whole || isForm && j.pinned {
			return refused(Unreadable, "the body is a form, encoded or signed, and has more than "+strconv.Itoa(maxBody>>20)+" MiB: too much to be searched before it goes")
		}
		rest := r.Body
		r.Body = j.scan.guard(body{io.MultiReader(bytes.NewReader(raw), rest), rest}, r, may)
		return nil
	}
	if full := (*act.Refused)(nil); errors.As(err, &full) {
		return full
	}
	if err != nil {
		return refused(Unreadable, "the body could not be read whole")
	}
	_ = r.Body.Close()
	plain, err := decodeAll(j.ctx, raw, coding)
	if err != nil {
		return err
	}
	for name, values := range r.Trailer {
		for _, v := range values {
			if err := j.scan.check(v, "the trailer "+name); err != nil {
				return err
			}
		}
	}
	out := plain
	switch {
	case isForm && fill:
		var s string
		s, err = j.fillPairs(string(plain), inForm, "the form")
		out = []byte(s)
	case isJSON && fill:
		out, err = j.fillJSON(plain, inJSON)
	default:
		err = j.scan.checkBut(string(plain), "the body", may)
	}
	if err != nil {
		return err
	}
	if !bytes.Equal(out, plain) {
		if raw, err = encodeAll(out, coding); err != nil {
			return err
		}
		for _, h := range []string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest"} {
			r.Header.Del(h)
		}
		r.ContentLength = int64(len(raw))
		r.TransferEncoding = nil
		if r.Header.Get("Content-Length") != "" {
			r.Header.Set("Content-Length", strconv.Itoa(len(raw)))
		}
	}
	r.Body = inMemory{bytes.NewReader(raw), raw}
	return nil
}

// mediaType gives the type of a Content-Type, also of one with malformed
// parameters, which servers read over.
func mediaType(v string) string {
	if i := strings.IndexAny(v, ";, \t"); i > 0 {
		v = v[:i]
	}
	return strings.ToLower(v)
}

// body joins what is read with what is closed.
type body struct {
	io.Reader
	io.Closer
}

var errTooMuch = errors.New("too much")

// freely is how many bytes of a body are read before its sandbox's memory is asked.
const freely = 64 << 10

// readUpTo reads all of r, which is said to have size bytes, or -1. Of more than
// limit bytes it gives the beginning and errTooMuch.
func readUpTo(ctx context.Context, r io.Reader, size, limit int64) ([]byte, error) {
	room := int64(4 << 10)
	if size >= 0 {
		room = min(size+1, freely)
	}
	b := make([]byte, 0, room)
	in := io.LimitReader(r, limit+1)
	for {
		if len(b) == cap(b) {
			more := int64(cap(b))
			if size >= int64(cap(b)) {
				more = size + 1 - int64(cap(b)) // no room for what is not there
				more = min(more, 4*int64(cap(b)))
			}
			if int64(cap(b))+more > freely {
				if err := act.Hold(ctx, more); err != nil {
					return b, err
				}
			}
			b = append(make([]byte, 0, int64(cap(b))+more), b...)
		}
		n, err := in.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF && int64(len(b)) > limit:
			return b, errTooMuch
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// codings gives the content codings of a message, in the order in which they
// were applied (RFC 9110, 8.4).
func codings(h http.Header) []string {
	var all []string
	for _, v := range h["Content-Encoding"] {
		for _, c := range strings.Split(v, ",") {
			c = strings.ToLower(strings.TrimSpace(c))
			if c == "" || c == "identity" || c == "aws-chunked" { // the last says how the body is cut
				continue
			}
			all = append(all, c)
		}
	}
	return all
}

// decodeAll takes all codings off a request's body.
func decodeAll(ctx context.Context, raw []byte, coding []string) ([]byte, error) {
	if len(coding) == 0 {
		return raw, nil
	}
	r, err := decoder(io.NopCloser(bytes.NewReader(raw)), coding)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	plain, err := readUpTo(ctx, r, -1, maxBody)
	if errors.Is(err, errTooMuch) {
		return nil, refused(Unreadable, "the body decodes to more than "+strconv.Itoa(maxBody>>20)+" MiB")
	}
	if full := (*act.Refused)(nil); errors.As(err, &full) {
		return nil, full
	}
	if err != nil {
		return nil, refused(Unreadable, "the body is not encoded as its header says")
	}
	return plain, nil
}
