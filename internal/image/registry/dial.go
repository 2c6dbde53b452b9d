package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/dial"
)

// refused is what must not be asked: it is told as it is, and not tried again.
type refused struct{ own *bailey.Error }

func (r refused) Error() string { return r.own.Error() }
func (r refused) Unwrap() error { return r.own }

func refuse(fix, format string, args ...any) error {
	return refused{bailey.Errorf(bailey.CodeForbidden, "fetch the image", fix, format, args...)}
}

// guard is the way to registries: what must not be reached is refused here, for
// first requests, redirects and places to get tokens from alike.
type guard struct {
	config       Config
	strict, open *http.Transport // with checked certificates, and without
}

func newGuard(c Config) *guard {
	g := &guard{config: c}
	make := func(t *tls.Config) *http.Transport {
		return &http.Transport{
			DialContext: g.dial, TLSClientConfig: t, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 15 * time.Second,
			ResponseHeaderTimeout: time.Minute, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: 4,
			// Blobs come as they are: a layer's own compression is part of its digest.
			DisableCompression: true,
		}
	}
	g.strict = make(&tls.Config{MinVersion: tls.VersionTLS12})
	g.open = make(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}) // the configuration says so
	return g
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	insecure := g.config.insecure(r.URL.Host)
	switch {
	case r.URL.Scheme != "https" && !(r.URL.Scheme == "http" && insecure):
		return nil, refuse("use TLS, or list "+clean(r.URL.Host)+" under insecure in "+ConfigFile,
			"%s would be asked without TLS", clean(r.URL.Host))
	}
	t := g.strict
	if insecure {
		t = g.open
	}
	resp, err := t.RoundTrip(r)
	if err == nil && r.Context().Value(largeKey{}) == nil {
		resp.Body = bounded{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// maxAnswer bounds all answers but blobs, in bytes: a registry could go on for
// ever with a token or an error.
const maxAnswer = MaxManifest + 64<<10

type bounded struct {
	io.Reader
	io.Closer
}

type largeKey struct{}

// large marks requests whose answer is bounded by whoever reads it.
func large(ctx context.Context) context.Context { return context.WithValue(ctx, largeKey{}, true) }

func (g *guard) close() { g.strict.CloseIdleConnections(); g.open.CloseIdleConnections() }

// dial connects to an address that has been checked: what the name leads to is
// looked at when the socket is made, so that no second answer can differ.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	private := g.config.private(address)
	d := net.Dialer{Timeout: 20 * time.Second, Control: func(_, at string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			return err
		}
		class := dial.Classify(to.Addr())
		if class == dial.Public || private && class != dial.Metadata {
			return nil
		}
		if class == dial.Metadata {
			return refuse("", "%s leads to a cloud's metadata service", clean(address))
		}
		return refuse("if that is wanted, list "+clean(hostname(address))+" under private in "+ConfigFile,
			"%s leads to %s, an address that is not public (%s)", clean(address), to.Addr(), class)
	}}
	return d.DialContext(ctx, network, address)
}

// redirects bounds how often a request is sent on. Each goes through guard.
func redirects(_ *http.Request, via []*http.Request) error {
	if len(via) > 5 {
		return refuse("", "the registry sends the request on more than 5 times")
	}
	return nil
}

// asRefused finds a refusal below what net/http has put around it.
func asRefused(err error) (error, bool) {
	var r refused
	if errors.As(err, &r) {
		return r.own, true
	}
	return nil, false
}

func unavailable(host string, err error) error {
	return bailey.Errorf(bailey.CodeRegistry, "fetch the image", "see that the registry's name is right and that this machine reaches it, and try again",
		"%s does not answer as it should: %w", clean(host), err)
}

func malformed(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeImageInvalid, "fetch the image", "fetch it again, or have it pushed anew", "%w", fmt.Errorf(format, args...))
}
