package unpack

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"github.com/bailey-sandbox/bailey"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// zstdWindow bounds the memory one zstd stream can ask for, in bytes: what the
// format recommends decoders to support is 8 MiB, what `zstd --ultra` writes
// is 128 MiB.
const zstdWindow = 128 << 20

// A Stream is the uncompressed tar behind a possibly compressed reader. It
// hashes and counts what passes and enforces the limits of size.
type Stream struct {
	ctx    context.Context
	in     *counter
	out    io.Reader
	sum    hash.Hash
	n      int64
	limits Limits
	plain  bool
	close  func()
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

// NewStream looks at the first bytes of r and undoes gzip, zstd or bzip2;
// anything else passes as it is. Close must be called.
func NewStream(ctx context.Context, r io.Reader, limits Limits) (*Stream, error) {
	if err := limits.check(); err != nil {
		return nil, err
	}
	s := &Stream{ctx: ctx, in: &counter{r: r}, sum: sha256.New(), limits: limits, close: func() {}}
	b := bufio.NewReaderSize(s.in, 128<<10)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, readFailed(err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, readFailed(err)
		}
		s.out, s.close = z, func() { z.Close() }
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(2*zstdWindow))
		if err != nil {
			return nil, readFailed(err)
		}
		s.out, s.close = z, z.Close
	case bytes.HasPrefix(head, []byte("BZh")):
		s.out = bzip2.NewReader(b)
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, bailey.Errorf(bailey.CodeImageInvalid, "unpack the layer", "unpack it with xz first, or use gzip or zstd", "it is compressed with xz")
	default:
		s.out, s.plain = b, true
	}
	return s, nil
}

// Read implements io.Reader. Its errors are Bailey's own.
func (s *Stream) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.out.Read(p)
	s.sum.Write(p[:n])
	s.n += int64(n)
	if s.n > s.limits.Bytes {
		return 0, tooMuch("bytes", s.limits.Bytes, "the uncompressed tar is longer than allowed")
	}
	if s.n > s.limits.RatioFrom && s.n/s.limits.Ratio > s.in.n {
		return 0, tooMuch("ratio", s.limits.Ratio, "%d compressed bytes have grown to %d: a decompression bomb", s.in.n, s.n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = readFailed(err)
	}
	return n, err
}

// Drain reads what is left, so that Digest covers the whole stream.
func (s *Stream) Drain() error {
	_, err := io.Copy(io.Discard, s)
	return err
}

// Plain says whether the stream was not compressed.
func (s *Stream) Plain() bool { return s.plain }

// Digest gives the sha256 of what has been read, in hex.
func (s *Stream) Digest() string { return hexOf(s.sum) }

// Bytes gives the number of uncompressed bytes read.
func (s *Stream) Bytes() int64 { return s.n }

// Close frees the decompressor. It does not close the reader below.
func (s *Stream) Close() { s.close() }

func readFailed(err error) error {
	var own *bailey.Error
	if errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return invalid("it cannot be read: %w", err)
}
