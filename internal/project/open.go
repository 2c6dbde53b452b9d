package project

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bailey-sandbox/bailey"
)

// File is a project's file as it was at one moment.
type File struct {
	Path string // absolute
	Data []byte
	Hash string // SHA-256 of Data, in hexadecimal digits
}

// Open reads the project's file of the workspace, a real path. It gives nil if
// there is none. Only a regular file of at most [MaxSize] bytes that lies in
// the workspace itself is read, no link and nothing that could block; anything
// else of that name fails with the code untrusted.
func Open(workspace string) (*File, error) {
	return openFile(filepath.Join(workspace, FileName), FileName)
}

// OpenPolicy reads the policy that a parsed file of the workspace names, in the
// same way. One that is not there is an error too.
func OpenPolicy(workspace string, named *File) (*File, error) {
	p, err := Beneath(workspace, named.Path)
	if err != nil {
		return nil, err
	}
	f, err := openFile(p, "the policy that "+FileName+" names")
	if err == nil && f == nil {
		err = bailey.Errorf(bailey.CodeNotFound, "use what "+FileName+" names", "", "%s is not there", p)
	}
	return f, err
}

func openFile(p, name string) (*File, error) {
	refuse := func(format string, args ...any) (*File, error) {
		return nil, bailey.Errorf(bailey.CodeUntrusted, "read "+name, "put a regular file there, or nothing", format, args...)
	}
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, syscall.ELOOP):
		return refuse("it is a link")
	case err != nil:
		return refuse("%w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return refuse("%w", err)
	}
	if !fi.Mode().IsRegular() {
		return refuse("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return refuse("%w", err)
	}
	if len(data) > MaxSize {
		return refuse("it has more than %d bytes", MaxSize)
	}
	return &File{Path: p, Data: data, Hash: hashOf(data)}, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Beneath follows p, an image or a mount's source of a parsed file, and gives
// its real path. It fails with the code untrusted if that is not in the
// workspace, a real path: a link there can be changed after the file was
// trusted.
func Beneath(workspace, p string) (string, error) {
	const fix = "replace the link by what it leads to"
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", bailey.Errorf(bailey.CodeNotFound, "use what "+FileName+" names", "", "%w", err)
	}
	if !within(real, workspace) {
		return "", bailey.Errorf(bailey.CodeUntrusted, "use what "+FileName+" names", fix, "%s leads out of the workspace", p)
	}
	return real, nil
}
