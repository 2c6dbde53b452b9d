package mirrors

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"
)

// file is one of an archive.
type file struct{ name, text string }

// made is when everything was.
var made = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func zipped(files ...file) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: made})
		if err == nil {
			_, err = w.Write([]byte(f.text))
		}
		must(err)
	}
	must(z.Close())
	return b.Bytes()
}

func tarred(files ...file) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)), ModTime: made, Format: tar.FormatUSTAR}
		if f.text == "" {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		must(t.WriteHeader(h))
		_, err := t.Write([]byte(f.text))
		must(err)
	}
	must(t.Close())
	must(z.Close())
	return b.Bytes()
}

// ar makes the archive that a Debian package is; see ar(5) and deb(5).
func ar(files ...file) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, f := range files {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", f.name, made.Unix(), 0, 0, "100644", len(f.text), f.text)
		if len(f.text)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// recordSum is a sum as wheels list it.
func recordSum(s string) string {
	h := sha256.Sum256([]byte(s))
	return "sha256=" + base64.RawURLEncoding.EncodeToString(h[:])
}

func must(err error) {
	if err != nil {
		panic(err) // writing to memory does not fail
	}
}
