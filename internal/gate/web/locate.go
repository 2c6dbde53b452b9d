package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// kindOf tells what a request wants to be. Of upgrades there is only WebSocket.
func kindOf(r *http.Request, upgrade string) (kind act.Kind, socket bool, e *malformed) {
	if !validMethod(r.Method) {
		return act.HTTP, false, bad("the method is no token in capital letters")
	}
	if r.Method == http.MethodConnect {
		return act.HTTP, false, &malformed{http.StatusMethodNotAllowed, "connect_refused", "a connection that the gate looks into leads nowhere else"}
	}
	if upgrade == "" {
		return act.HTTP, false, nil
	}
	if !strings.EqualFold(upgrade, "websocket") {
		return act.HTTP, false, &malformed{http.StatusNotImplemented, "upgrade_refused", "of other protocols the gate knows WebSocket only"}
	}
	return act.WebSocket, true, handshake(r)
}

// locate finds out where the request goes and puts its URL together. All that
// it says of its destination must agree: the target, the Host field, and the
// stream it came by. It gives the canonical path.
func (x *exchange) locate(hasHost bool) (path string, e *malformed) {
	r := x.r
	target := r.RequestURI
	if len(target) > maxTarget || target == "" || !visible(target) {
		return "", bad("the target is no URL")
	}
	defaultPort := uint16(80)
	if x.tls {
		defaultPort = 443
	}
	r.URL = &url.URL{Scheme: string(x.scheme())}
	absolute := false
	if target[0] != '/' {
		scheme, rest, ok := strings.Cut(target, "://")
		if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
			return "", bad("the target is neither a path nor a URL")
		}
		if !strings.EqualFold(scheme, string(x.scheme())) {
			return "", ambiguous("the target's scheme is not the connection's: for https use CONNECT")
		}
		end := strings.IndexAny(rest, "/?")
		authority := rest
		if target = "/"; end >= 0 {
			authority = rest[:end]
			if target = rest[end:]; target[0] == '?' {
				target = "/" + target
			}
		}
		at, err := policy.ParseAuthority(authority, defaultPort)
		if err != nil {
			return "", bad("the target's host is none")
		}
		if x.proxy {
			x.to, absolute = at, true
		} else if at != x.to {
			return "", misdirected("the target's host is not the one that was connected to")
		}
	}
	if x.proxy && !absolute {
		return "", bad("a proxy needs the whole URL")
	}
	if hasHost {
		at, err := policy.ParseAuthority(r.Host, defaultPort)
		if err != nil {
			return "", bad("the Host is none")
		}
		if at != x.to {
			return "", misdirected("the Host is not the one that was connected to")
		}
	}
	r.URL.Host = x.to.String()
	r.Host = hostField(x.to, defaultPort)

	raw, query, _ := strings.Cut(target, "?")
	if query != "" && !canonicalQuery(&query) {
		return "", bad("the query has a percent sign that escapes nothing")
	}
	r.URL.RawQuery = query
	path, err := policy.CanonicalPath(raw)
	if err != nil {
		return "", ambiguous("its path can be read in more than one way: " + err.Error())
	}
	if r.URL.Path, err = url.PathUnescape(path); err != nil {
		return "", ambiguous("its path has a percent sign that escapes nothing")
	}
	if strings.IndexByte(path, '%') >= 0 {
		r.URL.RawPath = path
	}
	// What is sent is what was judged, to the letter.
	if r.URL.EscapedPath() != path {
		r.URL.RawPath = path
		if r.URL.EscapedPath() != path {
			return "", ambiguous("its path has characters that should be escaped")
		}
	}
	return path, nil
}

func misdirected(why string) *malformed {
	return &malformed{http.StatusMisdirectedRequest, "authority_mismatch", why}
}

// hostField writes a Host field (RFC 9110, 7.2).
func hostField(to policy.Authority, defaultPort uint16) string {
	s := to.String()
	if to.Port() == defaultPort {
		s = s[:strings.LastIndexByte(s, ':')]
	}
	return s
}

// canonicalQuery escapes semicolons, by which some servers part what others
// keep together, and refuses percent signs that escape nothing.
func canonicalQuery(q *string) bool {
	for i := 0; i < len(*q); i++ {
		if (*q)[i] == '%' {
			if i+2 >= len(*q) || !hex((*q)[i+1]) || !hex((*q)[i+2]) {
				return false
			}
		}
	}
	if strings.IndexByte(*q, ';') >= 0 {
		*q = strings.ReplaceAll(*q, ";", "%3B")
	}
	return true
}

func hex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// maxNames bounds the query names that a record keeps.
const maxNames = 32

// queryNames gives the names of a query, each once and sorted.
func queryNames(u *url.URL, secrets act.Secrets) []string {
	var names []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if n, err := url.QueryUnescape(name); err == nil {
			name = n
		}
		if secrets != nil {
			name = secrets.Clean(name)
		}
		if len(name) > 64 {
			name = name[:64]
		}
		if name != "" && !slices.Contains(names, name) && len(names) < maxNames {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
