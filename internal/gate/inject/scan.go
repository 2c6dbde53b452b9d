package inject

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
)

// Reasons for which a request, message or stream does not go.
const (
	Misdirected       = "secret_misdirected"  // a placeholder on its way to where its secret is not bound
	ForeignSecret     = "foreign_placeholder" // a placeholder that is not this sandbox's
	ForeignCredential = "foreign_credential"  // a credential of the sandbox's own on a pinned host
	PlainHTTP         = "secret_plain_http"   // a value would go unencrypted
	Revoked           = "secret_revoked"      // taken away
	Unavailable       = "secret_unavailable"  // the value cannot be had
	Unreadable        = "body_unreadable"     // a body that cannot be searched
	Signature         = "signature_refused"   // a signed request that cannot be signed anew
)

func refused(reason, why string) error { return &act.Refused{Reason: reason, Why: why} }

// misdirected is the refusal for a placeholder in the wrong place.
func misdirected(p *pattern, where string) error {
	if p.name == "" {
		return refused(ForeignSecret, "in "+where+" is a placeholder that this sandbox was not given, or a part of one")
	}
	if !p.plain {
		return refused(Misdirected, "in "+where+" is the placeholder of "+p.name+", encoded where the gate does not put its value in")
	}
	return refused(Misdirected, "in "+where+" is the placeholder of "+p.name+", which the policy does not bind to this request or this place in it")
}

// scanner finds placeholders in what goes out: the sandbox's own, and by the
// mark those of others.
type scanner struct{ m *matcher }

func newScanner(placeholders map[string]string, mark string) *scanner {
	var all []pattern
	add := func(name, text string) {
		all = append(all, pattern{text: text, name: name, plain: true})
		for _, f := range binaryForms(text) {
			all = append(all, pattern{text: f.text, name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(placeholders)) {
		add(name, placeholders[name])
	}
	if mark != "" {
		add("", mark)
	}
	return &scanner{newMatcher(all)}
}

// check gives a refusal if there is a placeholder in text, as it is, percent-
// encoded or JSON-escaped.
func (s *scanner) check(text, where string) error {
	return s.checkBut(text, where, nil)
}

// checkBut lets the placeholders that may says pass.
func (s *scanner) checkBut(text, where string, may func(*pattern) bool) error {
	var first *pattern
	look := func(text string) (own bool) {
		for _, h := range s.m.all(text) {
			if may != nil && may(h.pattern) {
				continue
			}
			if h.name != "" {
				first = h.pattern // the sandbox's own says more than a mark
				return true
			}
			if first == nil {
				first = h.pattern
			}
		}
		return false
	}
	if !look(text) {
		for _, decode := range []func(string) (string, bool){percentDecoded, unescaped} {
			if d, ok := decode(text); ok && look(d) {
				break
			}
		}
	}
	if first == nil {
		return nil
	}
	return misdirected(first, where)
}

// percentDecoded decodes what is well-formed and leaves the rest. A second
// round finds what was encoded twice.
func percentDecoded(s string) (string, bool) {
	changed := false
	for range 2 {
		d, ok := decodeEscapes(s, '%', 0)
		if !ok {
			break
		}
		s, changed = d, true
	}
	return s, changed
}

// unescaped decodes \u00XX and \xXX.
func unescaped(s string) (string, bool) {
	d, ok := decodeEscapes(s, '\\', 'u')
	d, also := decodeEscapes(d, '\\', 'x')
	return d, ok || also
}

// decodeEscapes replaces mark, kind (unless 0) and hex digits by their byte.
func decodeEscapes(s string, mark, kind byte) (string, bool) {
	i := strings.IndexByte(s, mark)
	if i < 0 {
		return s, false
	}
	changed := false
	out := append(make([]byte, 0, len(s)), s[:i]...)
	for i < len(s) {
		j := i + 1
		if s[i] == mark && kind != 0 {
			if j < len(s) && s[j] == kind {
				j++
				if kind == 'u' {
					if j+2 <= len(s) && s[j:j+2] == "00" {
						j += 2
					} else {
						j = len(s)
					}
				}
			} else {
				j = len(s)
			}
		}
		if s[i] == mark && j+2 <= len(s) {
			if hi, lo := digit(s[j]), digit(s[j+1]); hi >= 0 && lo >= 0 {
				out = append(out, byte(hi<<4|lo))
				i, changed = j+2, true
				continue
			}
		}
		out = append(out, s[i])
		i++
	}
	return string(out), changed
}

func digit(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

// guarded is a body that is searched while it is sent. What may be the
// beginning of a placeholder waits, but for its first bytes; a whole one ends the
// body with a refusal before the rest of it has been sent.
type guarded struct {
	src  io.ReadCloser
	s    stream
	scan *scanner
	req  *http.Request // for its trailers
	in   []byte
	out  []byte
	pos  int
	err  error
	// given is how many of the bytes that the stream holds have gone already.
	given int
}

// beginning is how many bytes that may begin a placeholder go all the same: they
// tell nothing, and whoever waits for an answer to a message that happens to end
// like that would wait forever.
const beginning = 16

func (s *scanner) guard(src io.ReadCloser, req *http.Request, may func(*pattern) bool) *guarded {
	g := &guarded{src: src, scan: s, req: req}
	g.s = stream{m: s.m, hit: func(p *pattern) (string, bool) {
		if may != nil && may(p) {
			return p.text, true
		}
		g.err = misdirected(p, "the body")
		return "", false
	}}
	return g
}

func (g *guarded) Read(p []byte) (int, error) {
	if g.in == nil {
		g.in = make([]byte, 32<<10)
	}
	for g.pos == len(g.out) {
		if g.err != nil {
			return 0, g.err
		}
		n, err := g.src.Read(g.in)
		g.out = g.s.feed(g.out[:0], g.in[:n], err == io.EOF)
		g.pos = min(g.given, len(g.out))
		g.given -= g.pos
		if held := g.s.held; g.err == nil && !g.s.stopped && len(held) <= beginning && len(held) > g.given {
			g.out = append(g.out, held[g.given:]...)
			g.given = len(held)
		}
		if g.err == nil && err == io.EOF {
			err = g.trailers(err)
		}
		if g.err == nil {
			g.err = err
		}
	}
	n := copy(p, g.out[g.pos:])
	g.pos += n
	return n, nil
}

func (g *guarded) trailers(eof error) error {
	for name, values := range g.req.Trailer {
		for _, v := range values {
			if err := g.scan.check(v, "the trailer "+name); err != nil {
				return err
			}
		}
	}
	return eof
}

func (g *guarded) Close() error { return g.src.Close() }

// Opaque looks for placeholders in the pieces of a stream that nobody reads.
func (g *Grants) Opaque() func(p []byte) error {
	g.mu.RLock()
	scan := g.scan
	g.mu.RUnlock()
	var err error
	s := stream{m: scan.m, hit: func(p *pattern) (string, bool) {
		err = misdirected(p, "the stream")
		return "", false
	}}
	var sink []byte
	return func(p []byte) error {
		if err == nil {
			sink = s.feed(sink[:0], p, false)
		}
		return err
	}
}

// hostCheck refuses a placeholder in the place of a host or a user.
func (s *scanner) hostCheck(u *url.URL, host string) error {
	if err := s.check(host, "the host"); err != nil {
		return err
	}
	if u.User == nil {
		return nil
	}
	return s.check(u.User.String(), "the URL's user")
}
