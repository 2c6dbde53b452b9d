package web

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

const ok = "GET /a HTTP/1.1\r\nHost: ok.test\r\n"

func TestParseHead(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		reason string // "" is let in
	}{
		"plain":                 {ok + "\r\n", ""},
		"length":                {ok + "Content-Length: 3\r\n\r\n", ""},
		"chunked":               {ok + "Transfer-Encoding: Chunked\r\n\r\n", ""},
		"empty value":           {ok + "X:\r\n\r\n", ""},
		"bytes beyond ASCII":    {ok + "X: \xc3\xa9\r\n\r\n", ""},
		"HTTP/1.0":              {"GET / HTTP/1.0\r\n\r\n", ""},
		"no host":               {"GET / HTTP/1.1\r\n\r\n", "request_malformed"},
		"two hosts":             {ok + "Host: ok.test\r\n\r\n", "request_ambiguous"},
		"both":                  {ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "request_ambiguous"},
		"two lengths":           {ok + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", "request_ambiguous"},
		"one length twice":      {ok + "Content-Length: 3\r\nContent-Length: 3\r\n\r\n", "request_ambiguous"},
		"list of lengths":       {ok + "Content-Length: 3, 3\r\n\r\n", "request_ambiguous"},
		"sign":                  {ok + "Content-Length: +3\r\n\r\n", "request_ambiguous"},
		"long length":           {ok + "Content-Length: 9999999999999999999\r\n\r\n", "request_ambiguous"},
		"chunked, identity":     {ok + "Transfer-Encoding: chunked, identity\r\n\r\n", "request_ambiguous"},
		"gzip, chunked":         {ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", "request_ambiguous"},
		"chunked twice":         {ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "request_ambiguous"},
		"xchunked":              {ok + "Transfer-Encoding: xchunked\r\n\r\n", "request_ambiguous"},
		"chunked with VT":       {ok + "Transfer-Encoding: \x0bchunked\r\n\r\n", "request_malformed"},
		"chunked in HTTP/1.0":   {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "request_ambiguous"},
		"space before colon":    {ok + "Transfer-Encoding : chunked\r\n\r\n", "request_malformed"},
		"folded":                {ok + "X: a\r\n b\r\n\r\n", "request_malformed"},
		"folded after the line": {"GET / HTTP/1.1\r\n Host: ok.test\r\n\r\n", "request_malformed"},
		"bare LF":               {ok + "X: 1\nEvil: 2\r\n\r\n", "request_malformed"},
		"bare CR":               {ok + "X: 1\rEvil: 2\r\n\r\n", "request_malformed"},
		"NUL":                   {ok + "X: a\x00b\r\n\r\n", "request_malformed"},
		"no name":               {ok + ": a\r\n\r\n", "request_malformed"},
		"no colon":              {ok + "X\r\n\r\n", "request_malformed"},
		"HTTP/0.9":              {"GET /\r\n\r\n", "request_malformed"},
		"HTTP/2.0":              {"PRI * HTTP/2.0\r\n\r\n", "request_malformed"},
		"HTTP/1.2":              {"GET / HTTP/1.2\r\nHost: ok.test\r\n\r\n", "request_malformed"},
		"http/1.1":              {"GET / http/1.1\r\nHost: ok.test\r\n\r\n", "request_malformed"},
		"two spaces":            {"GET  / HTTP/1.1\r\nHost: ok.test\r\n\r\n", "request_malformed"},
		"space in target":       {"GET /a b HTTP/1.1\r\nHost: ok.test\r\n\r\n", "request_malformed"},
		"fragment":              {"GET /a#b HTTP/1.1\r\nHost: ok.test\r\n\r\n", "request_malformed"},
		"small method":          {"get / HTTP/1.1\r\nHost: ok.test\r\n\r\n", "request_malformed"},
		"expects else":          {ok + "Expect: 200-maybe\r\n\r\n", "request_malformed"},
		"many fields":           {ok + strings.Repeat("X: a\r\n", maxFields+1) + "\r\n", "request_too_large"},
		"long target":           {"GET /" + strings.Repeat("a", maxTarget) + " HTTP/1.1\r\nHost: ok.test\r\n\r\n", "request_too_large"},
	} {
		_, e := parseHead(c.text)
		if got := ""; e != nil {
			if got = e.reason; got != c.reason {
				t.Errorf("%s: %s (%s), want %q", name, got, e.why, c.reason)
			}
		} else if c.reason != "" {
			t.Errorf("%s was let in", name)
		}
	}
}

func TestBody(t *testing.T) {
	for name, c := range map[string]struct {
		text, want, rest string
		chunked          bool
		length           int64
		bad              bool
	}{
		"length":              {text: "abcNEXT", length: 3, want: "abc", rest: "NEXT"},
		"short":               {text: "ab", length: 3, bad: true},
		"chunks":              {text: "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\nNEXT", chunked: true, want: "abcde", rest: "NEXT"},
		"trailer is dropped":  {text: "1\r\na\r\n0\r\nAuthorization: x\r\n\r\nNEXT", chunked: true, want: "a", rest: "NEXT"},
		"bad trailer":         {text: "0\r\nA b\r\n\r\n", chunked: true, bad: true},
		"bare LF":             {text: "1\na\r\n0\r\n\r\n", chunked: true, bad: true},
		"no CR LF after data": {text: "1\r\nab\r\n0\r\n\r\n", chunked: true, bad: true},
		"negative":            {text: "-1\r\na\r\n0\r\n\r\n", chunked: true, bad: true},
		"prefix":              {text: "0x1\r\na\r\n0\r\n\r\n", chunked: true, bad: true},
		"huge":                {text: "ffffffffffffffff\r\na\r\n0\r\n\r\n", chunked: true, bad: true},
		"empty size":          {text: "\r\na\r\n0\r\n\r\n", chunked: true, bad: true},
		"cut off":             {text: "5\r\nab", chunked: true, bad: true},
		"no end":              {text: "1\r\na\r\n0\r\n", chunked: true, bad: true},
	} {
		r := bufio.NewReader(strings.NewReader(c.text))
		b := &body{r: r, left: c.length, chunked: c.chunked, first: true}
		got, err := io.ReadAll(b)
		if c.bad != (err != nil) {
			t.Errorf("%s: %q, %v", name, got, err)
			continue
		}
		rest, _ := io.ReadAll(r)
		if !c.bad && (string(got) != c.want || string(rest) != c.rest || !b.ended()) {
			t.Errorf("%s: %q then %q", name, got, rest)
		}
	}
}

// FuzzHead: what is let in reads the same when it is written anew, and says of
// its end what Go's own parser says.
func FuzzHead(f *testing.F) {
	f.Add(ok + "\r\n")
	f.Add(ok + "Content-Length: 3\r\nConnection: close, x\r\n\r\n")
	f.Add("POST http://ok.test/a HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
	f.Add("GET / HTTP/1.0\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		end := strings.Index(text, "\r\n\r\n")
		if end < 0 || end+4 != len(text) {
			return // the reader cuts there
		}
		h, e := parseHead(text)
		if e != nil {
			return
		}
		for name, values := range h.header {
			for _, v := range values {
				if !validToken(name) || strings.ContainsAny(v, "\r\n\x00") {
					t.Fatalf("%q: %q", name, v)
				}
			}
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return // we need not be stricter than Go, which parses the URL too
		}
		if r.Method != h.method || r.RequestURI != h.target || r.ContentLength != h.length && !(h.length == 0 && r.ContentLength == -1) {
			t.Fatalf("%q %q %d, Go says %q %q %d", h.method, h.target, h.length, r.Method, r.RequestURI, r.ContentLength)
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add("3\r\nabc\r\n0\r\n\r\n")
	f.Add("1;a=b\r\na\r\n0\r\nX: y\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		b := &body{r: bufio.NewReader(strings.NewReader(text)), chunked: true, first: true}
		got, err := io.ReadAll(b)
		if len(got) > len(text) {
			t.Fatal("more came out than went in")
		}
		if err == nil && !b.ended() {
			t.Fatal("it has not ended")
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0x81, 0x81, 1, 2, 3, 4, 'a'}, true)
	f.Add([]byte{0x82, 126, 0, 126}, false)
	f.Fuzz(func(t *testing.T, b []byte, client bool) {
		r := bufio.NewReader(strings.NewReader(string(b)))
		fr, err := readFrame(r, client)
		if err != nil {
			return
		}
		var out strings.Builder
		w := bufio.NewWriter(&out)
		writeFrame(w, fr)
		w.Flush()
		if !strings.HasPrefix(string(b), out.String()) {
			t.Fatalf("%x was written as %x", b, out.String())
		}
	})
}
