package main

import (
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/ca"
)

// systemRoots reads the authorities of this host while there is the right to:
// the file that SSL_CERT_FILE names, or the distribution's bundle. They are parsed
// when the first server is to be verified, which many a sandbox does not wait for.
// Package crypto/x509 would read hundreds of files beside the bundle that say the
// same, for as long as all else takes; it does where SSL_CERT_DIR names another
// folder than the bundle's, and where there is no bundle.
func systemRoots() (func() *x509.CertPool, error) {
	name := os.Getenv("SSL_CERT_FILE")
	text, err := readBundle(name)
	if err != nil {
		name, text, err = ca.SystemBundle()
	}
	dir := os.Getenv("SSL_CERT_DIR")
	if err == nil && (dir == "" || filepath.Clean(dir) == filepath.Dir(name)) && ca.HasCertificate(text) {
		return sync.OnceValue(func() *x509.CertPool {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(text)
			return pool
		}), nil
	}
	pool, err := x509.SystemCertPool()
	return func() *x509.CertPool { return pool }, err
}

// maxBundle bounds a file of authorities, in bytes; a system's has 250 KB.
const maxBundle = 16 << 20

// readBundle reads a file of authorities. What has no end, or would wait for
// somebody to write, is none.
func readBundle(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxBundle {
		return nil, &os.PathError{Op: "read", Path: name, Err: errors.New("it is no file of certificates")}
	}
	return io.ReadAll(io.LimitReader(f, maxBundle))
}
