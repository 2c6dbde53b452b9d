package access

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Guard lets requests in whose sender it knows.
type Guard struct {
	Keys *Keys // nil: only the unix socket
	// Hosts are the names under which the daemon is reached over TCP; another Host
	// header comes from a name that somebody has pointed here. One that begins with a
	// dot stands for all names below it.
	Hosts []string
	// Origins are the web pages, such as https://HOST, that may ask beside the
	// daemon's own.
	Origins []string
	// Refuse answers a request with an error; limit and wait are set for rates.
	Refuse func(w http.ResponseWriter, err error, limit int64, wait time.Duration)
	Next   http.Handler
}

type peerKey struct{}

// peer is who is at the other end of a unix socket.
type peer struct {
	uid uint32
	err error
}

// ConnContext is for http.Server: it notes who is at the other end of a unix socket.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	p := peer{}
	raw, err := u.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) {
			var cred *unix.Ucred
			if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				p.uid = cred.Uid
			}
		})
		if err == nil {
			err = cerr
		}
	}
	p.err = err
	return context.WithValue(ctx, peerKey{}, p)
}

// ServeHTTP implements http.Handler.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		fmt.Fprintln(w, "ok") // whoever asked has gone
		return
	}
	id, limit, wait, err := g.identify(r)
	if err != nil {
		g.Refuse(w, err, limit, wait)
		return
	}
	g.Next.ServeHTTP(w, r.WithContext(With(r.Context(), id)))
}

func (g *Guard) identify(r *http.Request) (id Identity, limit int64, wait time.Duration, err error) {
	const what = "let the request in"
	local, isLocal := r.Context().Value(peerKey{}).(peer)
	if !isLocal && !g.known(r.Host) {
		return id, 0, 0, bailey.Errorf(bailey.CodeForbidden, what, "use a name of the daemon's, or add it to hosts in its configuration", "this daemon is not %q", r.Host)
	}
	if err := g.sameOrigin(r); err != nil {
		return id, 0, 0, err
	}
	if isLocal {
		if local.err != nil {
			return id, 0, 0, bailey.Errorf(bailey.CodeUnauthorized, what, "", "the kernel does not say who asks: %w", local.err)
		}
		id.Name = fmt.Sprintf("uid:%d", local.uid)
		id.Scopes = []Scope{Read, Exec, Write}
		if local.uid == 0 || int(local.uid) == os.Geteuid() {
			// Whoever can do this much with the data folder itself may name folders.
			id.Scopes, id.Admin, id.Local = Scopes, true, true
		}
		return id, 0, 0, nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || g.Keys == nil || len(r.Header.Values("Authorization")) != 1 {
		return id, 0, 0, bailey.Errorf(bailey.CodeUnauthorized, what, "send a key: Authorization: Bearer bailey_…", "it has no key")
	}
	id, perSecond, wait, err := g.Keys.Admit(r.Context(), token)
	if err != nil {
		return id, int64(perSecond), wait, err
	}
	return id, 0, 0, nil
}

// known tells whether a Host header is one of the daemon's.
func (g *Guard) known(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	return slices.ContainsFunc(g.Hosts, func(h string) bool {
		h = strings.ToLower(h)
		return name == h || strings.HasPrefix(h, ".") && strings.HasSuffix(name, h)
	})
}

// sameOrigin refuses what a web page of somebody else's made a browser send.
func (g *Guard) sameOrigin(r *http.Request) error {
	refused := func(why string) error {
		return bailey.Errorf(bailey.CodeForbidden, "let the request in", "add the page's origin to origins in the daemon's configuration", "%s", why)
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		if s := r.Header.Get("Sec-Fetch-Site"); s != "" && s != "same-origin" && s != "none" {
			return refused("a web page elsewhere asks")
		}
		return nil
	}
	if slices.Contains(g.Origins, origin) {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return refused("a web page at " + origin + " asks")
	}
	return nil
}
