package inject

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// FuzzPlaceholders: whatever a sandbox sends to a host without a binding, no
// value goes there, and what is not refused goes as it is.
func FuzzPlaceholders(f *testing.F) {
	k := newKit(f)
	ph := k.ph["github"]
	f.Add("text/plain", "", "x "+ph)
	f.Add("application/json", "", `{"a":"\u0067hp_","`+ph+`":[1]}`)
	f.Add("application/x-www-form-urlencoded", "a="+ph, "a=%67hp_&&c")
	f.Add("application/json", "%zz=%", `{"a":"\"`)
	first := k.raw("POST https://free.test/", "", "")
	pr, rule := k.act(first), k.rule("free")
	f.Fuzz(func(t *testing.T, kind, query, body string) {
		r, err := http.NewRequest("POST", "https://free.test/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", kind)
		if _, err := k.Request(t.Context(), r, pr, rule); err != nil {
			return
		}
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if string(sent) != body || r.URL.RawQuery != query || strings.Contains(body+query, ph) {
			t.Errorf("%q with %q went as %q with %q", body, query, sent, r.URL.RawQuery)
		}
	})
}

// FuzzJSON: where values are put in, JSON stays JSON, and only strings change.
func FuzzJSON(f *testing.F) {
	k := newKit(f)
	ph := k.ph["api"]
	f.Add(`{"a":"`+ph+`","b":[1,"\u00e9"]}`, true)
	f.Add(`"\\`+ph+`\""`, true)
	f.Add(` [ "" , {"":""} ]`, false)
	r, err := http.NewRequest("POST", "https://api.everything.test/", nil)
	if err != nil {
		f.Fatal(err)
	}
	pr := k.act(r)
	rule := k.rule("everything")
	f.Fuzz(func(t *testing.T, text string, _ bool) {
		out, err := k.job(t.Context(), pr, rule).fillJSON([]byte(text), inJSON)
		if err != nil {
			return
		}
		if json.Valid([]byte(text)) != json.Valid(out) {
			t.Errorf("%q became %q", text, out)
		}
		if !strings.Contains(text, ph) && !strings.Contains(text, `\`) && string(out) != text {
			t.Errorf("%q became %q without a placeholder", text, out)
		}
		if strings.Contains(string(out), ph) {
			t.Errorf("a placeholder is left in %q", out)
		}
	})
}

// FuzzStream: in two pieces the same comes out as whole, and never a value.
func FuzzStream(f *testing.F) {
	f.Add("the value", "x the value y", 5)
	f.Add("abababababab", "abababababababab", 11)
	f.Add(`a"b\c%d+e/f=`, `a\"b\\c%d+e/f=`, 3)
	f.Fuzz(func(t *testing.T, value, text string, cut int) {
		if len(value) < secrets.MinValue || len(value) > 200 || cut < 0 || cut > len(text) {
			return
		}
		held := secrets.NewHeld()
		held.Put(&secrets.Current{Name: "A", Value: secrets.NewValue([]byte(value))})
		g := &Grants{from: NewIssuer(held, mark), placeholders: map[string]string{"A": mark + "0123456789abcdefghijkl"}, stored: map[string]string{"A": "A"}}
		s := g.scrubbing()
		st := stream{m: s.m, hit: func(p *pattern) (string, bool) { return s.with(p), true }}
		out := st.feed(nil, []byte(text[:cut]), false)
		out = st.feed(out, []byte(text[cut:]), true)
		if whole := s.replace(text, nil); string(out) != whole || strings.Contains(whole, value) && !strings.Contains(mark+"0123456789abcdefghijkl", value) {
			t.Errorf("in pieces %q, whole %q, of %q", out, whole, value)
		}
	})
}
