package changes

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
)

// binaryProbe is how far into a file a NUL byte makes it binary; git looks
// as far.
const binaryProbe = 8000

func isBinary(head []byte) bool {
	return bytes.IndexByte(head[:min(len(head), binaryProbe)], 0) >= 0
}

// binaryFile says whether the file has a NUL byte near its start.
func binaryFile(f *os.File) (bool, error) {
	var head [binaryProbe]byte
	n, err := f.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return isBinary(head[:n]), nil
}

// sameContent compares two files of equal size. buf is room to work in.
func sameContent(a, b *os.File, buf []byte) (bool, error) {
	half := len(buf) / 2
	x, y := buf[:half], buf[half:2*half]
	for at := int64(0); ; at += int64(half) {
		n, err := a.ReadAt(x, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		m, err2 := b.ReadAt(y, at)
		if err2 != nil && !errors.Is(err2, io.EOF) {
			return false, err2
		}
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if errors.Is(err, io.EOF) || n < half {
			return true, nil
		}
	}
}

func sumFile(f *os.File) ([32]byte, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return [32]byte{}, err
	}
	return [32]byte(h.Sum(nil)), nil
}

func sum(data []byte) [32]byte { return sha256.Sum256(data) }
