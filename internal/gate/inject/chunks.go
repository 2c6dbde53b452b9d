package inject

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
)

// A body in chunks carries a signature in front of each chunk, which covers the
// chunk and the signature before it ("Signature calculations for the
// authorization header: transferring payload in multiple chunks" in the Amazon
// S3 API reference; "...including trailing headers" for the other shape). A
// signature has the same length whoever makes it, so that the body's length
// stays.

const (
	maxChunk     = 8 << 20 // bytes of one chunk; clients send 64 KiB to 1 MiB
	maxChunkLine = 4 << 10
)

type chunks struct {
	src   io.ReadCloser
	in    *bufio.Reader
	key   []byte
	stamp string
	scope string
	last  string // the signature before
	trail bool

	out  []byte // not read yet
	data []byte
	err  error
}

func newChunks(src io.ReadCloser, key []byte, stamp, scope, seed string, trail bool) *chunks {
	return &chunks{src: src, in: bufio.NewReaderSize(src, maxChunkLine), key: key, stamp: stamp, scope: scope, last: seed, trail: trail}
}

func (c *chunks) Read(p []byte) (int, error) {
	for len(c.out) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.err = c.chunk()
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

func (c *chunks) Close() error { return c.src.Close() }

func malformed() error {
	return refused(Signature, "the body is not in the signed chunks that its header announces")
}

// chunk reads one chunk and signs it. io.EOF is the end of the body.
func (c *chunks) chunk() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	size, rest, ok := strings.Cut(line, ";")
	sig, named := strings.CutPrefix(rest, "chunk-signature=")
	n, bad := strconv.ParseUint(size, 16, 32)
	if !ok || !named || bad != nil || !sigForm.matches(sig) {
		return malformed()
	}
	if n > maxChunk {
		return refused(Signature, "a signed chunk of the body has more than "+strconv.Itoa(maxChunk>>20)+" MiB")
	}
	if uint64(cap(c.data)) < n {
		c.data = make([]byte, n)
	}
	c.data = c.data[:n]
	if _, err := io.ReadFull(c.in, c.data); err != nil {
		return cutOff(err)
	}
	hash := sha256.Sum256(c.data)
	c.last = hex.EncodeToString(sum(c.key, strings.Join([]string{awsAlgorithm + "-PAYLOAD", c.stamp, c.scope, c.last, emptyHash, hex.EncodeToString(hash[:])}, "\n")))
	c.out = append(c.out[:0], size+";chunk-signature="+c.last+"\r\n"...)
	c.out = append(c.out, c.data...)
	if n == 0 && c.trail {
		return c.trailer()
	}
	if line, err = c.line(); err != nil {
		return err
	}
	if line != "" {
		return malformed()
	}
	c.out = append(c.out, "\r\n"...)
	if n > 0 {
		return nil
	}
	return c.end()
}

// trailer reads the headers behind the last chunk, and signs them.
func (c *chunks) trailer() error {
	const signed = "x-amz-trailer-signature:"
	var canonical strings.Builder
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		if _, ok := strings.CutPrefix(line, signed); ok {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || canonical.Len() > maxChunkLine {
			return malformed()
		}
		canonical.WriteString(strings.ToLower(strings.TrimSpace(name)) + ":" + strings.TrimSpace(value) + "\n")
		c.out = append(c.out, line+"\r\n"...)
	}
	hash := sha256.Sum256([]byte(canonical.String()))
	c.last = hex.EncodeToString(sum(c.key, strings.Join([]string{awsAlgorithm + "-TRAILER", c.stamp, c.scope, c.last, hex.EncodeToString(hash[:])}, "\n")))
	c.out = append(c.out, signed+c.last+"\r\n"...)
	// Some end the trailer with an empty line, others do not.
	rest, err := io.ReadAll(io.LimitReader(c.in, 3))
	if err != nil {
		return err
	}
	if len(rest) != 0 && !bytes.Equal(rest, []byte("\r\n")) {
		return malformed()
	}
	c.out = append(c.out, rest...)
	return io.EOF
}

// end wants nothing to follow.
func (c *chunks) end() error {
	_, err := c.in.ReadByte()
	switch {
	case err == io.EOF:
		return io.EOF
	case err == nil:
		return malformed()
	}
	return err
}

// line reads one, without its end.
func (c *chunks) line() (string, error) {
	b, err := c.in.ReadSlice('\n')
	if err != nil {
		return "", cutOff(err)
	}
	line, ok := bytes.CutSuffix(b, []byte("\r\n"))
	if !ok {
		return "", malformed()
	}
	return string(line), nil
}

// cutOff keeps an error of the body's own, such as a refusal, and makes the
// others one.
func cutOff(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF || err == bufio.ErrBufferFull {
		return malformed()
	}
	return err
}
