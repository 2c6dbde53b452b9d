package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"strings"
)

// maxSpelt bounds values, in bytes, for which answers are searched with every
// byte escaped: each such form is several times as long as the value.
const maxSpelt = 2 << 10

// form is one way in which a text may be written.
type form struct {
	text  string
	plain bool
	// of writes another text in the same way.
	of func(string) string
}

// binaryForms are the ways that change every letter: base64, wherever in the
// encoded text it begins, and hex.
func binaryForms(v string) []form {
	var all []form
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for k := range 3 {
			write := func(s string) string { return aligned(enc, s, k) }
			all = append(all, form{text: write(v), of: func(s string) string { return write(fitted(s, len(v))) }})
		}
	}
	lower := func(s string) string { return hex.EncodeToString([]byte(s)) }
	upper := func(s string) string { return strings.ToUpper(lower(s)) }
	for _, write := range []func(string) string{lower, upper} {
		all = append(all, form{text: write(v), of: write})
	}
	return all
}

// allForms are all ways in which an answer is searched for a value, v as it is
// first.
func allForms(v string) []form {
	as := func(s string) string { return s }
	all := []form{{text: v, plain: true, of: as}}
	seen := map[string]bool{v: true}
	add := func(text string, of func(string) string) {
		if !seen[text] {
			seen[text] = true
			all = append(all, form{text: text, of: of})
		}
	}
	// A placeholder has only letters that these leave as they are.
	for _, text := range []string{url.QueryEscape(v), url.PathEscape(v), unreserved(v)} {
		add(text, as)
		add(lowerPercent(text), as)
	}
	marked := quoted(v, true)
	for _, text := range []string{quoted(v, false), marked, strings.ReplaceAll(quoted(v, false), "/", `\/`), lowerUnicode(marked), html.EscapeString(v)} {
		add(text, as)
	}
	if len(v) > maxSpelt {
		all = append(all, binaryForms(v)...)
		return all
	}
	for _, mask := range []string{"%XX", "%xx", `\uXX`, `\uxx`, `\xXX`, `\xxx`} {
		add(spelt(v, mask), func(s string) string { return spelt(s, mask) })
	}
	for _, f := range binaryForms(v) {
		add(f.text, f.of)
	}
	return all
}

// aligned gives the letters of the base64 of a text that holds s, behind k bytes
// (modulo 3), that depend on s alone.
func aligned(enc *base64.Encoding, s string, k int) string {
	whole := enc.EncodeToString(append(make([]byte, k), s...))
	return whole[(k*8+5)/6 : (k+len(s))*8/6]
}

// fitted makes s n bytes long.
func fitted(s string, n int) string {
	return strings.Repeat(s, n/len(s)+1)[:n]
}

// unreserved percent-encodes all but what RFC 3986 leaves: %20 for a space,
// %2A for a star.
func unreserved(v string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(v), "+", "%20"), "*", "%2A")
}

func lowerPercent(s string) string { return lowerAfter(s, "%", 2) }
func lowerUnicode(s string) string { return lowerAfter(s, `\u`, 4) }

func lowerAfter(s, mark string, n int) string {
	b := []byte(s)
	for i := 0; i+len(mark)+n <= len(b); i++ {
		if string(b[i:i+len(mark)]) == mark {
			copy(b[i+len(mark):], bytes.ToLower(b[i+len(mark):i+len(mark)+n]))
		}
	}
	return string(b)
}

// quoted gives s as the inside of a JSON string; html escapes <, > and & too.
func quoted(s string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	_ = e.Encode(s) // a string: it never fails
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// spelt writes every byte as an escape.
func spelt(s, mask string) string {
	var b strings.Builder
	for i := range len(s) {
		two := hex.EncodeToString([]byte{s[i]})
		if strings.HasSuffix(mask, "XX") {
			two = strings.ToUpper(two)
		}
		b.WriteString(mask[:len(mask)-2])
		if mask[1] == 'u' {
			b.WriteString("00")
		}
		b.WriteString(two)
	}
	return b.String()
}
