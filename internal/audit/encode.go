package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Bounds of a record, in bytes of its line.
const (
	maxText  = 4 << 10  // of one text
	maxTexts = 64       // of one list
	maxWords = 48 << 10 // of all texts; what comes behind is cut to shortText
)

// MaxLine is how many bytes a line has at most.
const MaxLine = 128 << 10

const shortText = 16

// NewExec describes a command. The digest is the SHA-256 of its words, each
// with a NUL behind it.
func NewExec(id string, argv []string) *Exec {
	e := &Exec{ID: id, Arguments: max(len(argv)-1, 0)}
	h := sha256.New()
	for _, a := range argv {
		h.Write([]byte(a))
		h.Write([]byte{0})
	}
	e.Digest = hex.EncodeToString(h.Sum(nil))
	if len(argv) > 0 {
		e.Program = argv[0]
	}
	return e
}

// encoder writes the canonical form: members in the order of the types here,
// without empty ones, no space, ASCII only.
type encoder struct {
	b     []byte
	words int // bytes of texts so far
	first bool
}

func (e *encoder) name(n string) {
	if !e.first {
		e.b = append(e.b, ',')
	}
	e.first = false
	e.b = append(append(append(e.b, '"'), n...), '"', ':')
}

func (e *encoder) open(n string) {
	e.name(n)
	e.b = append(e.b, '{')
	e.first = true
}

func (e *encoder) close() {
	e.b = append(e.b, '}')
	e.first = false
}

func (e *encoder) integer(n string, v int64) {
	e.name(n)
	e.b = strconv.AppendInt(e.b, v, 10)
}

func (e *encoder) count(n string, v int64) {
	if v != 0 {
		e.integer(n, v)
	}
}

func (e *encoder) flag(n string, v bool) {
	if v {
		e.name(n)
		e.b = append(e.b, "true"...)
	}
}

func (e *encoder) text(n, s string) {
	if s != "" {
		e.name(n)
		e.quote(s)
	}
}

func (e *encoder) texts(n string, list []string) {
	if len(list) == 0 {
		return
	}
	e.name(n)
	e.b = append(e.b, '[')
	for i, s := range list {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		if i == maxTexts {
			e.quote(fmt.Sprintf("…[%d more]", len(list)-i))
			break
		}
		e.quote(s)
	}
	e.b = append(e.b, ']')
}

const hexDigits = "0123456789abcdef"

// quote writes a JSON string. What is no printable ASCII becomes \uXXXX; a byte
// that is no UTF-8 becomes the four characters \xNN. A text that is too long is
// cut between characters, with a mark that says how many bytes are missing.
func (e *encoder) quote(s string) {
	limit := maxText
	if e.words >= maxWords {
		limit = shortText
	}
	e.b = append(e.b, '"')
	start := len(e.b)
	for i := 0; i < len(s); {
		if len(e.b)-start >= limit {
			e.b = fmt.Appendf(e.b, `\u2026[%d bytes cut]`, len(s)-i)
			break
		}
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			e.b = append(e.b, c)
			i++
			continue
		}
		if c == '"' || c == '\\' {
			e.b = append(e.b, '\\', c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			e.b = append(e.b, '\\', '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		case r > 0xffff:
			r -= 0x10000
			e.unit(0xd800 + r>>10)
			e.unit(0xdc00 + r&0x3ff)
		default:
			e.unit(r)
		}
		i += n
	}
	e.words += len(e.b) - start
	e.b = append(e.b, '"')
}

func (e *encoder) unit(r rune) {
	e.b = append(e.b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// appendMiddle writes what lies between time and prev.
func appendMiddle(b []byte, r *Record) []byte {
	e := encoder{b: b}
	e.text("kind", r.Kind)
	e.text("session", r.Session)
	e.text("sandbox", r.Sandbox)
	e.text("policy", r.Policy)
	e.text("decision", r.Decision)
	e.text("reason", r.Reason)
	e.text("rule", r.Rule)
	e.count("of", r.Of)
	if g := r.Egress; g != nil {
		e.open("egress")
		e.text("via", g.Via)
		e.text("scheme", g.Scheme)
		e.text("host", g.Host)
		e.count("port", int64(g.Port))
		e.text("method", g.Method)
		e.text("path", g.Path)
		e.texts("query", g.Query)
		e.text("sni", g.SNI)
		e.text("alpn", g.ALPN)
		e.text("address", g.Address)
		e.texts("secrets", g.Secrets)
		e.text("approval", g.Approval)
		e.text("digest", g.Digest)
		e.texts("steps", g.Steps)
		e.flag("opaque", g.Opaque)
		e.text("flow", g.Flow)
		e.close()
	}
	if x := r.Exec; x != nil {
		e.open("exec")
		e.text("id", x.ID)
		e.text("program", x.Program)
		e.integer("arguments", int64(x.Arguments))
		e.text("digest", x.Digest)
		e.text("level", x.Level)
		e.text("workdir", x.Workdir)
		e.text("end", x.End)
		e.count("status", int64(x.Status))
		e.close()
	}
	if o := r.Outcome; o != nil {
		e.open("outcome")
		e.count("status", int64(o.Status))
		e.integer("sent", o.Sent)
		e.integer("received", o.Received)
		e.integer("duration", int64(o.Duration))
		e.count("scrubbed", int64(o.Scrubbed))
		e.text("error", o.Error)
		e.close()
	}
	if c := r.Checkpoint; c != nil {
		e.open("checkpoint")
		e.text("key", c.Key)
		e.text("signature", c.Signature)
		e.close()
	}
	if g := r.Gap; g != nil {
		e.open("gap")
		e.text("why", g.Why)
		e.count("bytes", g.Bytes)
		e.text("digest", g.Digest)
		e.count("from", g.From)
		e.count("to", g.To)
		e.text("hash", g.Hash)
		e.close()
	}
	if len(r.Detail) > 0 {
		e.open("detail")
		for i, k := range slices.Sorted(maps.Keys(r.Detail)) {
			if i == maxTexts {
				break
			}
			e.text(plainName(k), r.Detail[k])
		}
		e.close()
	}
	return e.b
}

// plainName keeps a name of a detail, which is ours, to what needs no escape.
func plainName(k string) string {
	if len(k) > shortText*4 {
		k = k[:shortText*4]
	}
	out := []byte(k)
	for i, c := range out {
		if c > unicode.MaxASCII || !unicode.IsLetter(rune(c)) && !unicode.IsDigit(rune(c)) && c != '_' && c != '-' && c != '.' {
			out[i] = '_'
		}
	}
	return string(out)
}
