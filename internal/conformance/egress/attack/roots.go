package main

import (
	"crypto/x509"
	"os"
	"sync"
)

// roots gives the certificates that the sandbox's settings name, or the system's.
var roots = sync.OnceValue(func() *x509.CertPool {
	if name := os.Getenv("SSL_CERT_FILE"); name != "" {
		if b, err := os.ReadFile(name); err == nil {
			p := x509.NewCertPool()
			p.AppendCertsFromPEM(b)
			return p
		}
	}
	p, err := x509.SystemCertPool()
	if err != nil {
		return x509.NewCertPool()
	}
	return p
})
