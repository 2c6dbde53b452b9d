package inject

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/policy"
)

// sentBy travels with a request, for its answer.
type sentBy struct{}

// answer says how the answer to a request is to be treated.
type answer struct {
	pinned bool
}

// Request implements act.Secrets.
func (g *Grants) Request(ctx context.Context, r *http.Request, pr policy.Request, rule *policy.Rule) ([]string, error) {
	j := g.job(ctx, pr, rule)
	if err := j.scan.hostCheck(r.URL, r.Host); err != nil {
		return nil, err
	}
	if j.pinned && r.URL.User != nil {
		return nil, foreign("the user in the URL")
	}
	set, err := j.settingHeaders(r.Header)
	if err != nil {
		return nil, err
	}
	signed, err := j.signature(r)
	if err != nil {
		return nil, err
	}
	if err := j.fillPath(r.URL); err != nil {
		return nil, err
	}
	if r.URL.RawQuery, err = j.fillPairs(r.URL.RawQuery, inQuery, "the query"); err != nil {
		return nil, err
	}
	if err := j.headers(r.Header, signed != nil); err != nil {
		return nil, err
	}
	j.limitAnswer(r.Header, signed != nil && len(set) == 0 && len(j.used) == 0)
	if err := j.body(r, signed != nil && signed.needsBody(r)); err != nil {
		return nil, err
	}
	for _, name := range set {
		v, err := j.value(name)
		if err != nil {
			return nil, err
		}
		b := j.bound[name]
		format := b.Format
		if format == "" {
			format = "{value}"
		}
		r.Header.Set(b.Header, strings.ReplaceAll(format, "{value}", v))
	}
	if signed != nil {
		if err := j.sign(r, signed); err != nil {
			return nil, err
		}
	}
	*r = *r.WithContext(context.WithValue(r.Context(), sentBy{}, answer{pinned: j.pinned}))
	return j.used, nil
}

// settingHeaders takes out the headers that the gate sets itself, and gives the
// secrets for which it does. Where two would set one header, the first by name
// does.
func (j *job) settingHeaders(h http.Header) ([]string, error) {
	var set []string
	taken := map[string]bool{}
	for name, b := range j.bound {
		if b.Header != "" {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	for _, name := range set {
		header := http.CanonicalHeaderKey(j.bound[name].Header)
		for _, v := range h[header] {
			for _, hit := range j.found(v) {
				if hit.name != name {
					return nil, misdirected(hit.pattern, "the header "+header)
				}
			}
		}
		if taken[header] {
			return nil, refused(Unavailable, "two secrets of the rule set the header "+header)
		}
		taken[header] = true
		delete(h, header)
	}
	return set, nil
}

// found looks into a header's value, and into what Basic has encoded in it.
func (j *job) found(v string) []found {
	if enc, ok := scheme(v, "basic"); ok {
		if plain, err := decodeBasic(enc); err == nil {
			return j.scan.m.all(plain)
		}
	}
	return j.scan.m.all(v)
}

// scheme cuts an authentication scheme off, in any case.
func scheme(v, name string) (rest string, ok bool) {
	v = strings.TrimSpace(v)
	if len(v) <= len(name) || v[len(name)] != ' ' || !strings.EqualFold(v[:len(name)], name) {
		return "", false
	}
	return strings.TrimSpace(v[len(name):]), true
}

// headers puts values into headers, and refuses foreign credentials in them.
// Authorization is left out where it is a signature that is made anew.
func (j *job) headers(h http.Header, signed bool) error {
	for name, values := range h {
		if err := j.scan.check(name, "a header's name"); err != nil {
			return err
		}
		credential := isCredentialHeader(name)
		if signed && (name == "Authorization" || name == "X-Amz-Security-Token") {
			continue
		}
		if credential && j.pinned && len(values) > 1 && name != "Cookie" {
			return foreign("a second header " + name)
		}
		for i, v := range values {
			filled, err := j.header(name, v, credential && j.pinned)
			if err != nil {
				return err
			}
			values[i] = filled
		}
	}
	return nil
}

func (j *job) header(name, v string, exclusive bool) (string, error) {
	where := "the header " + name
	if name == "Authorization" || name == "Proxy-Authorization" {
		if enc, ok := scheme(v, "basic"); ok {
			filled, err := j.fillBasic(enc, where)
			if err != nil || filled == enc {
				return v, err
			}
			return "Basic " + filled, nil
		}
	}
	if name == "Cookie" {
		return j.cookies(v, exclusive)
	}
	filled, _, err := j.fill(v, inHeader, where, nil)
	if err != nil {
		return "", err
	}
	if name == "Sec-Websocket-Protocol" && j.pinned {
		rest := v
		for _, h := range j.scan.m.all(v) {
			rest = strings.Replace(rest, h.text, "", 1)
		}
		if credentialProtocol(rest) {
			return "", foreign(where)
		}
	}
	if exclusive && v != "" {
		credential := strings.TrimSpace(v)
		if before, after, ok := strings.Cut(credential, " "); ok && likeScheme(before) {
			credential = strings.TrimSpace(after)
		}
		if hits := j.scan.m.all(credential); len(hits) != 1 || hits[0].start != 0 || hits[0].end != len(credential) {
			return "", foreign(where)
		}
	}
	if filled == v {
		return v, j.scan.check(v, where)
	}
	return filled, nil
}

// likeScheme tells that a word is an authentication scheme's name.
func likeScheme(s string) bool {
	switch strings.ToLower(s) {
	case "bearer", "token", "bot", "apikey", "api-key", "key", "genie", "genkey", "sso-key", "oauth", "klaviyo-api-key", "ghost", "splunk", "discogs", "zoho-oauthtoken", "ssws", "basic", "deepgram", "snowflake":
		return true
	}
	return false
}

// cookies works on the pairs of a Cookie header. On a pinned host each cookie is
// a credential: none was ever let in (Set-Cookie is taken out of answers), so
// none goes out but one that holds a placeholder and nothing else.
func (j *job) cookies(v string, exclusive bool) (string, error) {
	pairs := strings.Split(v, ";")
	for i, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		filled, whole, err := j.fill(value, inHeader, "a cookie", nil)
		if err != nil {
			return "", err
		}
		if exclusive && strings.TrimSpace(p) != "" && !whole {
			return "", foreign("the cookie " + printable(strings.TrimSpace(name)))
		}
		if err := j.scan.check(name, "a cookie's name"); err != nil {
			return "", err
		}
		if filled != value {
			pairs[i] = name + "=" + filled
		} else if ok {
			if err := j.scan.check(value, "a cookie"); err != nil {
				return "", err
			}
		}
	}
	return strings.Join(pairs, ";"), nil
}

// limitAnswer keeps the other side to what can be searched: encodings that the
// gate decodes, and, where a value goes, whole bodies. A part of a body could
// begin in the middle of a value; a server may always send the whole (RFC 9110,
// 14.2). A key that only signs is never sent, so that parts are fine there.
func (j *job) limitAnswer(h http.Header, onlySigned bool) {
	if accept := h.Values("Accept-Encoding"); len(accept) > 0 {
		var keep []string
		for _, a := range strings.Split(strings.Join(accept, ","), ",") {
			coding, _, _ := strings.Cut(a, ";")
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "br", "zstd", "deflate", "identity":
				keep = append(keep, strings.TrimSpace(a))
			}
		}
		if len(keep) == 0 {
			keep = []string{"identity"}
		}
		h.Set("Accept-Encoding", strings.Join(keep, ", "))
	}
	if j.pinned {
		for _, name := range messageAccepts {
			if h.Get(name) != "" {
				h.Set(name, "identity")
			}
		}
	}
	if j.pinned && !onlySigned {
		h.Del("Range")
		h.Del("If-Range")
	}
}
