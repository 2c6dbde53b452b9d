package inject

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"io"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxCodings is how many codings may lie upon each other.
const maxCodings = 2

// decoder takes codings off while it is read. Nothing is read before. A coding
// that it does not know is a refusal.
func decoder(src io.ReadCloser, coding []string) (io.ReadCloser, error) {
	if len(coding) > maxCodings {
		return nil, refused(Unreadable, "the body is encoded too often")
	}
	var r io.Reader = src
	var closers []func()
	for i := len(coding) - 1; i >= 0; i-- {
		open := opener(coding[i])
		if open == nil {
			return nil, refused(Unreadable, "the body has the content coding "+printable(coding[i])+", which the gate cannot decode")
		}
		l := &lazy{src: r, open: open}
		closers = append(closers, l.close)
		r = l
	}
	return body{r, closeAll{src, closers}}, nil
}

type closeAll struct {
	src     io.Closer
	closers []func()
}

func (c closeAll) Close() error {
	for _, f := range c.closers {
		f()
	}
	return c.src.Close()
}

// opener gives how a coding is decoded, and nil for one that is not known.
func opener(coding string) func(io.Reader) (io.Reader, func(), error) {
	nothing := func() {}
	switch coding {
	case "gzip", "x-gzip":
		return func(r io.Reader) (io.Reader, func(), error) {
			z, err := gzip.NewReader(r)
			return z, nothing, err
		}
	case "br":
		return func(r io.Reader) (io.Reader, func(), error) { return brotli.NewReader(r), nothing, nil }
	case "zstd":
		return func(r io.Reader) (io.Reader, func(), error) {
			z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderLowmem(true))
			if err != nil {
				return nil, nothing, err
			}
			return z, z.Close, nil
		}
	case "deflate":
		return func(r io.Reader) (io.Reader, func(), error) {
			// By the RFC it is zlib; some send it bare. A zlib header is a multiple
			// of 31 (RFC 1950, 2.2).
			b := bufio.NewReader(r)
			if h, err := b.Peek(2); err == nil && h[0]&0x0f == 8 && (uint(h[0])<<8|uint(h[1]))%31 == 0 {
				z, err := zlib.NewReader(b)
				return z, nothing, err
			}
			return flate.NewReader(b), nothing, nil
		}
	}
	return nil
}

// lazy opens a decoder at the first read: that of gzip reads at once, and an
// answer's headers must not wait for its body.
type lazy struct {
	src  io.Reader
	open func(io.Reader) (io.Reader, func(), error)

	mu   sync.Mutex // a body may be closed while it is read
	r    io.Reader
	end  func()
	err  error
	done bool
}

func (l *lazy) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil && l.err == nil {
		first := bufio.NewReader(l.src)
		if _, err := first.Peek(1); err != nil {
			l.err = err // an empty body is no stream of the coding, and is fine
		} else {
			l.r, l.end, l.err = l.open(first)
		}
	}
	if l.err != nil {
		return 0, l.err
	}
	n, err := l.r.Read(p)
	l.err = err
	return n, err
}

func (l *lazy) close() {
	// A read that waits for the other side holds the lock; its decoder is left
	// to the garbage collector then.
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if l.end != nil && !l.done {
		l.end()
	}
	l.done, l.err = true, io.ErrClosedPipe
}

// encodeAll puts codings on.
func encodeAll(plain []byte, coding []string) ([]byte, error) {
	for _, c := range coding {
		var b bytes.Buffer
		var w io.WriteCloser
		switch strings.TrimPrefix(c, "x-") {
		case "gzip":
			w = gzip.NewWriter(&b)
		case "br":
			w = brotli.NewWriter(&b)
		case "zstd":
			z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
			if err != nil {
				return nil, err
			}
			w = z
		case "deflate":
			w = zlib.NewWriter(&b)
		default:
			return nil, refused(Unreadable, "the body's content coding cannot be made again")
		}
		if _, err := w.Write(plain); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		plain = b.Bytes()
	}
	return plain, nil
}
