package webhook

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// never are addresses that are nobody's on the public internet, beside those that
// package netip knows.
var never = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "fec0::/10")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// allowed tells whether a webhook may be sent to an address.
func allowed(a netip.Addr, extra []netip.Prefix) bool {
	a = a.Unmap()
	for _, p := range extra {
		if p.Contains(a) {
			return true
		}
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.Zone() != "" {
		return false
	}
	for _, p := range never {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// checkURL refuses a URL that no webhook can have. Where its name leads is checked
// at each connection, because that changes.
func checkURL(text string, extra []netip.Prefix) error {
	refuse := func(format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, "tell "+text, "use https://HOST/PATH", format, args...)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return refuse("%w", err)
	case len(text) > 2048:
		return refuse("it is longer than 2048 bytes")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" || u.Opaque != "":
		return refuse("it is no URL of a web server")
	}
	a, err := netip.ParseAddr(u.Hostname())
	literal := err == nil
	if literal && !allowed(a, extra) {
		return refuse("%s is no address on the public internet; the operator can allow it: webhooks.allow", a)
	}
	if u.Scheme == "http" && !(literal && within(a, extra)) {
		return refuse("what it is told could be read on the way; http is for addresses that the operator has allowed")
	}
	return nil
}

func within(a netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}

// client gives an HTTP client that connects to allowed addresses only, whatever a
// name resolves to at that moment.
func client(extra []netip.Prefix) *http.Client {
	d := &net.Dialer{
		Timeout: 10 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil || !allowed(ap.Addr(), extra) {
				return bailey.Errorf(bailey.CodeForbidden, "connect to "+address, "the operator can allow it: webhooks.allow", "it is no address on the public internet")
			}
			return nil
		},
	}
	return &http.Client{
		Timeout: 15 * time.Second,
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, n, a string) (net.Conn, error) { return d.DialContext(ctx, n, a) },
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        time.Minute,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
