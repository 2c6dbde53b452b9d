package ingress

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/engine"
)

// TokenHeader carries the token of a private port. Where that cannot be set, the
// token may come as Authorization: Bearer.
const TokenHeader = "Bailey-Port-Token"

// cookieName has the prefix that makes browsers keep a cookie to exactly one host,
// and have no other host set it.
const cookieName = "__Host-bailey-port"

// credentials are what a request has to be let in with. They are taken out of it, so
// that no sandbox sees them, whether they were needed or not.
type credentials struct {
	token, link, cookie string
}

// take takes the credentials out of a request's header and query.
func take(h http.Header, u *url.URL) (c credentials) {
	c.token = h.Get(TokenHeader)
	h.Del(TokenHeader)
	var others []string
	for _, v := range h["Authorization"] {
		scheme, token, _ := strings.Cut(strings.TrimSpace(v), " ")
		if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && strings.HasPrefix(token, "bailey_") {
			// An API key is nothing for a sandbox either.
			if c.token == "" && strings.HasPrefix(token, engine.TokenPrefix) {
				c.token = token
			}
			continue
		}
		others = append(others, v)
	}
	set(h, "Authorization", others)
	var cookies []string
	for _, line := range h["Cookie"] {
		var kept []string
		for part := range strings.SplitSeq(line, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if strings.EqualFold(strings.TrimSpace(name), cookieName) {
				if c.cookie == "" {
					c.cookie = strings.TrimSpace(value)
				}
				continue
			}
			kept = append(kept, part)
		}
		if line = strings.TrimSpace(strings.Join(kept, ";")); line != "" {
			cookies = append(cookies, line)
		}
	}
	set(h, "Cookie", cookies)
	c.link, u.RawQuery = takeLink(u.RawQuery)
	return c
}

// takeLink takes a link's parameter out of a query and leaves the rest as it is.
func takeLink(query string) (value, rest string) {
	if !strings.Contains(query, "b") && !strings.Contains(query, "%") {
		return "", query
	}
	var kept []string
	found := false
	for part := range strings.SplitSeq(query, "&") {
		name, v, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err == nil && plain == engine.LinkParameter {
			if v, err := url.QueryUnescape(v); err == nil && value == "" {
				value = v
			}
			found = true
			continue
		}
		kept = append(kept, part)
	}
	if !found {
		return "", query
	}
	return value, strings.Join(kept, "&")
}

func set(h http.Header, name string, values []string) {
	if len(values) == 0 {
		h.Del(name)
		return
	}
	h[name] = values
}

// own says whether a browser sent a request on behalf of a page of the same host, or
// because a person went there. Only then a cookie lets in: pages of other sandboxes
// are below the same domain, so that browsers send the cookie with their requests.
func own(r *http.Request) bool {
	if o := r.Header.Get("Origin"); o != "" {
		u, err := url.Parse(o)
		if err != nil || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// admission is how a request is let in.
type admission struct {
	ok     bool
	cookie *http.Cookie // to be set, and the clean URL to be gone to
}

// admit decides whether a request may reach a port.
func admit(x engine.Exposed, c credentials, r *http.Request) (a admission) {
	browsing := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
	if c.link != "" {
		value, until, ok := x.Link(c.link)
		if ok && browsing && !x.Public {
			a.cookie = &http.Cookie{Name: cookieName, Value: value, Path: "/", Expires: until, MaxAge: max(1, int(time.Until(until).Seconds())),
				Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
		}
		a.ok = ok
	}
	a.ok = a.ok || x.Public || c.token != "" && x.Token(c.token) || c.cookie != "" && x.Cookie(c.cookie) && own(r)
	return a
}
