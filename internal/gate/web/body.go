package web

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

// errBody is a body that is not what its framing said.
var errBody = errors.New("the request's body is malformed")

const (
	// maxChunkLine bounds a chunk's size line with its extensions.
	maxChunkLine = 256
	// maxTrailer bounds the fields after a chunked body, which are read over.
	maxTrailer = 8 << 10
)

// body reads a request's body from its connection. The reader is shared with
// the next request, so that nothing but the body may be read. It is used by one
// goroutine at a time; the connection waits for Close before it reads on.
type body struct {
	r       *bufio.Reader
	left    int64 // of the body, or of the chunk
	chunked bool
	first   bool // no chunk was read
	err     error
	// before is called before the first read: it sends 100 Continue.
	before func() error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.before != nil {
		f := b.before
		b.before = nil
		if b.err = f(); b.err != nil {
			return 0, b.err
		}
	}
	if b.left == 0 {
		b.err = io.EOF
		if b.chunked {
			b.err = b.next()
		}
		if b.err != nil {
			return 0, b.err
		}
	}
	if len(p) == 0 {
		return 0, nil
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		b.err = err
	} else if b.left == 0 && !b.chunked {
		b.err = io.EOF
		err = io.EOF
	}
	return n, err
}

// next reads the line of the next chunk (RFC 9112, 7.1); io.EOF after the last.
func (b *body) next() error {
	if !b.first {
		if line, err := b.line(2); err != nil {
			return err
		} else if line != "" {
			return errBody
		}
	}
	b.first = false
	line, err := b.line(maxChunkLine)
	if err != nil {
		return err
	}
	size, extensions, _ := strings.Cut(line, ";")
	size = strings.TrimRight(size, " \t")
	if len(size) == 0 || len(size) > 15 || strings.ContainsAny(size, "+-_") {
		return errBody
	}
	for i := range len(extensions) {
		if c := extensions[i]; c < ' ' && c != '\t' || c == 0x7f {
			return errBody
		}
	}
	n, err := strconv.ParseUint(size, 16, 60)
	if err != nil {
		return errBody
	}
	if n > 0 {
		b.left = int64(n)
		return nil
	}
	// Fields after the body are dropped: a credential in them would have been
	// seen by nobody.
	for total := 0; ; {
		line, err := b.line(maxTrailer)
		if err != nil {
			return err
		}
		if line == "" {
			return io.EOF
		}
		if total += len(line); total > maxTrailer {
			return errBody
		}
		if _, _, e := field(line); e != nil {
			return errBody
		}
	}
}

// line reads a line that ends with CR LF.
func (b *body) line(limit int) (string, error) {
	line, err := b.r.ReadSlice('\n')
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		} else if errors.Is(err, bufio.ErrBufferFull) {
			err = errBody
		}
		return "", err
	}
	if len(line) > limit+2 || len(line) < 2 || line[len(line)-2] != '\r' {
		return "", errBody
	}
	return string(line[:len(line)-2]), nil
}

// ended tells that the body was read to its end.
func (b *body) ended() bool { return b.err == io.EOF || b.err == nil && !b.chunked && b.left == 0 }

// remainder is the body of a short answer. It tells whether something is still to come,
// for which what there is must not wait: its server may take its time.
type remainder struct {
	io.ReadCloser
	left int64
}

func (r *remainder) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.left -= int64(n); err != nil {
		r.left = 0
	}
	return n, err
}

// coming tells that a body has not come whole yet. of one without a remainder nothing
// is known.
func (r *remainder) coming() bool { return r == nil || r.left > 0 }

// remains gives the rest of a short answer. The gate's own are there whole.
func (x *exchange) remains() *remainder {
	if x.own {
		return &remainder{}
	}
	return x.rest
}
