package inject

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/policy"
)

// Places in which a binding may let its value be put: policy.Secret.In.
const (
	inHeader    = "header"
	inBasic     = "basic"
	inQuery     = "query"
	inJSON      = "json"
	inForm      = "form"
	inWebSocket = "websocket"
	inPath      = "path"
	inSigV4     = "sigv4"
)

// job is the work on one request or message.
type job struct {
	ctx  context.Context
	held *secrets.Held
	scan *scanner
	// bound are the secrets that the rule lists, for this host.
	bound   map[string]*policy.Secret
	revoked map[string]bool
	// pinned: the host has a secret, so that no other credential goes there.
	pinned bool
	// plain: it goes over HTTP without TLS, and the rule does not allow values there.
	plain bool
	used  []string
}

func (g *Grants) job(ctx context.Context, pr policy.Request, rule *policy.Rule) *job {
	g.mu.RLock()
	defer g.mu.RUnlock()
	j := &job{ctx: ctx, held: g.from.held, scan: g.scan}
	for name, b := range g.bindings {
		if !b.Covers(pr) {
			continue
		}
		j.pinned = true
		if rule != nil && slices.Contains(rule.Secrets, name) {
			if j.bound == nil {
				j.bound, j.revoked = map[string]*policy.Secret{}, map[string]bool{}
			}
			j.bound[name], j.revoked[name] = b, g.revoked[name]
		}
	}
	if rule != nil && len(rule.Secrets) > 0 {
		j.pinned = true
	}
	j.plain = pr.Scheme == policy.HTTP && (rule == nil || !rule.PlainSecrets)
	return j
}

// quotes says that a placeholder in a JSON body may go as it is: of a secret that the
// gate puts into this very request in another place. The host has the value, and
// the placeholder is but a name to it; a conversation with a model that quotes its
// environment repeats it in every request.
func (j *job) quotes(p *pattern) bool { return p.plain && p.name != "" && j.bound[p.name] != nil }

// any tells whether a bound secret may be put in at place.
func (j *job) any(place string) bool {
	for _, b := range j.bound {
		if slices.Contains(b.In, place) {
			return true
		}
	}
	return false
}

// value gives the value of a bound secret, for use in this request.
func (j *job) value(name string) (string, error) {
	if j.revoked[name] {
		return "", refused(Revoked, "the secret "+name+" was taken from this sandbox")
	}
	if j.plain {
		return "", refused(PlainHTTP, "the secret "+name+" would go over HTTP without TLS; use https, or plain_secrets in the rule")
	}
	c, err := j.held.Get(j.ctx, j.bound[name].Name)
	if err != nil {
		return "", refused(Unavailable, "the value of the secret "+name+" cannot be had: see bailey secret ls")
	}
	if c.Value == nil {
		return "", refused(Revoked, "the secret "+name+" was revoked")
	}
	if !slices.Contains(j.used, name) {
		j.used = append(j.used, name)
	}
	return string(c.Value.Bytes()), nil
}

// fill replaces the placeholders in text, which stands at place, by what write
// makes of their values. whole tells that the text was one placeholder.
func (j *job) fill(text, place, where string, write func(string) string) (filled string, whole bool, err error) {
	hits := j.scan.m.all(text)
	if len(hits) == 0 {
		return text, false, nil
	}
	var out strings.Builder
	done := 0
	for _, h := range hits {
		if h.name == "" {
			return "", false, j.scan.check(text, where) // it may be the sandbox's own, encoded
		}
		b := j.bound[h.name]
		if !h.plain || b == nil || !slices.Contains(b.In, place) {
			return "", false, misdirected(h.pattern, where)
		}
		v, err := j.value(h.name)
		if err != nil {
			return "", false, err
		}
		if write != nil {
			v = write(v)
		}
		out.WriteString(text[done:h.start])
		out.WriteString(v)
		done = h.end
	}
	out.WriteString(text[done:])
	return out.String(), len(hits) == 1 && hits[0].start == 0 && hits[0].end == len(text), nil
}

// fillPairs works on a query or a form: pieces that hold nothing stay as they
// are, byte by byte.
func (j *job) fillPairs(raw, place, where string) (string, error) {
	if raw == "" {
		return "", nil
	}
	pieces := strings.Split(raw, "&")
	changed := false
	for i, piece := range pieces {
		key, value, _ := strings.Cut(piece, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			name = key
		}
		if err := j.scan.check(name, "a name in "+where); err != nil {
			return "", err
		}
		text, err := url.QueryUnescape(value)
		if err != nil {
			text = value
		}
		filled, whole, err := j.fill(text, place, where, nil)
		if err != nil {
			return "", err
		}
		if j.pinned && !whole && text != "" && isCredentialParameter(name) {
			return "", foreign("the parameter " + printable(name) + " in " + where)
		}
		if j.pinned && place == inForm { // some part forms by semicolons too; in queries they are escaped
			for _, more := range strings.Split(piece, ";")[1:] {
				name, value, _ := strings.Cut(more, "=")
				if n, err := url.QueryUnescape(name); err == nil {
					name = n
				}
				if value != "" && isCredentialParameter(name) {
					return "", foreign("the parameter " + printable(name) + " in " + where)
				}
			}
		}
		if filled != text {
			pieces[i], changed = key+"="+url.QueryEscape(filled), true
			continue
		}
		if err := j.scan.check(text, where); err != nil { // encoded once more
			return "", err
		}
	}
	if !changed {
		return raw, nil
	}
	return strings.Join(pieces, "&"), nil
}

func printable(name string) string {
	if len(name) > 40 {
		name = name[:40]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// fillBasic works on the credentials of Basic authentication (RFC 7617).
func (j *job) fillBasic(encoded, where string) (string, error) {
	plain, err := decodeBasic(encoded)
	if err != nil {
		if j.pinned {
			return "", foreign(where)
		}
		return encoded, j.scan.check(encoded, where)
	}
	user, pass, _ := strings.Cut(plain, ":")
	filledUser, wholeUser, err := j.fill(user, inBasic, where, nil)
	if err != nil {
		return "", err
	}
	filledPass, wholePass, err := j.fill(pass, inBasic, where, nil)
	if err != nil {
		return "", err
	}
	// Some take the key as the user, others as the password: neither may be a
	// credential beside ours.
	if j.pinned && !(wholeUser && (wholePass || likeName(pass)) || wholePass && likeName(user)) {
		return "", foreign(where)
	}
	if filledUser == user && filledPass == pass {
		return encoded, nil
	}
	return base64.StdEncoding.EncodeToString([]byte(filledUser + ":" + filledPass)), nil
}

func decodeBasic(encoded string) (string, error) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	return string(plain), err
}

// likeName tells whether a user or password beside a placeholder is a name,
// such as x-access-token, and no credential.
func likeName(s string) bool { return len(s) < 20 && secrets.Prefix([]byte(s)) == "" }

// fillJSON works on the string values of a JSON text. All other bytes stay.
func (j *job) fillJSON(text []byte, place string) ([]byte, error) {
	if !json.Valid(text) {
		return text, j.scan.check(string(text), "the body")
	}
	var out []byte
	done := 0
	for i := 0; i < len(text); {
		if text[i] != '"' {
			i++
			continue
		}
		end := i + 1
		escaped := false
		for text[end] != '"' { // the text is valid: there is an end
			if text[end] == '\\' {
				escaped = true
				end++
			}
			end++
		}
		end++
		literal := string(text[i+1 : end-1])
		inside := literal
		if escaped {
			_ = json.Unmarshal(text[i:end], &inside) // valid
		}
		key := isKey(text[end:])
		switch {
		case key:
			if err := j.scan.check(inside, "a key of the body"); err != nil {
				return nil, err
			}
		default:
			filled, _, err := j.fill(inside, place, "the body", nil)
			if err != nil {
				return nil, err
			}
			if filled != inside {
				out = append(append(out, text[done:i+1]...), quoted(filled, false)...)
				done = end - 1
			} else if err := j.scan.check(inside, "the body"); err != nil {
				return nil, err
			}
		}
		i = end
	}
	if done == 0 {
		return text, nil
	}
	return append(out, text[done:]...), nil
}

// isKey tells whether a string is followed by a colon.
func isKey(rest []byte) bool {
	for _, b := range rest {
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b == ':'
		}
	}
	return false
}

// fillPath works on a path's segments.
func (j *job) fillPath(u *url.URL) error {
	segments := strings.Split(u.EscapedPath(), "/")
	changed := false
	for i, s := range segments {
		text, err := url.PathUnescape(s)
		if err != nil {
			text = s
		}
		filled, _, err := j.fill(text, inPath, "the path", nil)
		if err != nil {
			return err
		}
		if filled == text {
			if err := j.scan.check(text, "the path"); err != nil {
				return err
			}
			continue
		}
		segments[i], changed = url.PathEscape(filled), true
	}
	if !changed {
		return nil
	}
	raw := strings.Join(segments, "/")
	plain, err := url.PathUnescape(raw)
	if err != nil {
		return refused(Misdirected, "the path cannot be decoded")
	}
	u.Path, u.RawPath = plain, raw
	return nil
}
