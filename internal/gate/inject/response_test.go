package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// answerTo gives an answer to a request that the gate has worked on.
func (k *kit) answerTo(line, rule string, header http.Header, body io.Reader) *http.Response {
	k.t.Helper()
	r := k.raw(line, "", "")
	if _, err := k.Request(k.t.Context(), r, k.act(r), k.rule(rule)); err != nil {
		k.t.Fatal(err)
	}
	return &http.Response{StatusCode: 200, Status: "200 OK", Header: header, Body: io.NopCloser(body), ContentLength: -1, Request: r}
}

func read(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// spellings are how an answer may hold a value, by names of their own: not the
// ones of the code under test.
func spellings(v string) map[string]string {
	j, _ := json.Marshal(v)
	all := map[string]string{
		"plain": v, "json": string(j), "query": url.QueryEscape(v), "path": url.PathEscape(v), "hex": hex.EncodeToString([]byte(v)),
		"HEX": fmt.Sprintf("%X", v), "html": html.EscapeString(v), "php": strings.ReplaceAll(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(j)), "/", `\/`),
	}
	var percent, escaped strings.Builder
	for i := range len(v) {
		fmt.Fprintf(&percent, "%%%02X", v[i])
		fmt.Fprintf(&escaped, `\u%04x`, v[i])
	}
	all["percent"], all["escaped"] = percent.String(), escaped.String()
	all["lower percent"] = strings.ToLower(percent.String())
	for k := range 3 {
		for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.URLEncoding} {
			all[fmt.Sprintf("base64 %s %d", name, k)] = enc.EncodeToString([]byte("abc"[:k] + v + "xyz"))
		}
	}
	return all
}

// core is a spelling without the letters of base64 that depend on neighbours.
func core(name, text string) string {
	if strings.HasPrefix(name, "base64") {
		return text[4 : len(text)-8]
	}
	return text
}

// TestEchoesAreTakenOut of body, headers, trailers, Location and status, in
// each spelling, whatever the pieces (S3).
func TestEchoesAreTakenOut(t *testing.T) {
	k := newKit(t)
	for _, v := range []string{githubValue, apiValue, awsKey} {
		for name, text := range spellings(v) {
			count := 0
			h := http.Header{"X-Echo": {"a " + text + " b"}, "Location": {"https://x.test/?t=" + text}, "X-Api-Echo": {text, text}}
			body := "before " + text + " middle " + text + " after"
			resp := k.answerTo("GET https://api.everything.test/", "everything", h, iotest.OneByteReader(strings.NewReader(body)))
			resp.Status = "200 " + text
			resp.Trailer = http.Header{"X-Late": nil}
			resp.Body = io.NopCloser(io.MultiReader(resp.Body, late{func() { resp.Trailer["X-Late"] = []string{text} }}))
			if err := k.Response(resp, func(n int) { count += n }); err != nil {
				t.Fatal(err)
			}
			got := read(t, resp.Body)
			all := got + resp.Status + fmt.Sprint(resp.Header, resp.Trailer)
			if strings.Contains(all, core(name, text)) {
				t.Errorf("%s of %.8s…: %s", name, v, all)
			}
			if count != 8 {
				t.Errorf("%s of %.8s…: %d echoes were found", name, v, count)
			}
			if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, " middle ") {
				t.Errorf("%s of %.8s…: other text changed: %s", name, v, got)
			}
		}
	}
	resp := k.answerTo("GET https://api.everything.test/", "everything", http.Header{}, strings.NewReader("my key is "+githubValue))
	if err := k.Response(resp, nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, resp.Body); got != "my key is "+k.ph["github"] {
		t.Errorf("the sandbox sees %q and not its placeholder", got)
	}
}

// late calls f when it is read.
type late struct{ f func() }

func (l late) Read([]byte) (int, error) {
	l.f()
	return 0, io.EOF
}

func TestEncodedAnswersAreDecoded(t *testing.T) {
	k := newKit(t)
	for _, coding := range []string{"gzip", "br", "zstd", "deflate", "gzip, br"} {
		raw, err := encodeAll([]byte("<"+githubValue+">"), strings.Split(strings.ReplaceAll(coding, " ", ""), ","))
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{"Content-Encoding": {coding}, "Content-Length": {strconv.Itoa(len(raw))}, "Etag": {`"x"`}, "Digest": {"sha-256=x"}}
		resp := k.answerTo("GET https://api.everything.test/", "everything", h, bytes.NewReader(raw))
		if err := k.Response(resp, nil); err != nil {
			t.Fatal(coding, err)
		}
		if got := read(t, resp.Body); got != "<"+k.ph["github"]+">" {
			t.Errorf("%s: %q", coding, got)
		}
		if h.Get("Content-Encoding") != "" || h.Get("Content-Length") != "" || h.Get("Etag") != `W/"x"` || h.Get("Digest") != "" || resp.ContentLength != -1 {
			t.Errorf("%s: %v", coding, h)
		}
		_ = resp.Body.Close()
	}
	// What cannot be decoded does not come from a host that knows a value.
	resp := k.answerTo("GET https://api.everything.test/", "everything", http.Header{"Content-Encoding": {"lzma"}}, strings.NewReader("x"))
	k.refusedFor(k.Response(resp, nil), Unreadable)
	resp = k.answerTo("GET https://free.test/", "free", http.Header{"Content-Encoding": {"lzma"}}, strings.NewReader("x"))
	if err := k.Response(resp, nil); err != nil || read(t, resp.Body) != "x" {
		t.Errorf("from a host that knows none: %v", err)
	}
	resp = k.answerTo("GET https://api.everything.test/", "everything", http.Header{"Content-Range": {"bytes 5-9/10"}}, strings.NewReader("x"))
	resp.StatusCode = http.StatusPartialContent
	k.refusedFor(k.Response(resp, nil), Unreadable)
}

func TestCookiesOfPinnedHostsStayOutside(t *testing.T) {
	k := newKit(t)
	for host, want := range map[string]int{"api.everything.test everything": 0, "free.test free": 1} {
		host, rule, _ := strings.Cut(host, " ")
		resp := k.answerTo("GET https://"+host+"/", rule, http.Header{"Set-Cookie": {"session=1"}}, strings.NewReader(""))
		if err := k.Response(resp, nil); err != nil || len(resp.Header["Set-Cookie"]) != want {
			t.Errorf("%s: %v %v", host, err, resp.Header)
		}
	}
	r := k.raw("HEAD https://api.everything.test/", "", "")
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Length": {"7"}, "Content-Encoding": {"gzip"}, "X": {githubValue}}, Body: http.NoBody, ContentLength: 7, Request: r}
	if err := k.Response(resp, nil); err != nil || resp.Header.Get("Content-Length") != "7" || resp.ContentLength != 7 || resp.Header.Get("X") != k.ph["github"] {
		t.Errorf("HEAD: %v %v", err, resp.Header)
	}
}

// TestEventsAreNotKeptBack: what ends with a line comes at once, and so does a
// message of gRPC, which the other side waits for.
func TestEventsAreNotKeptBack(t *testing.T) {
	k := newKit(t)
	message := func(text string) string {
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))) + text
	}
	for kind, steps := range map[string][]struct{ send, get string }{
		"text/event-stream": {
			{"data: one\n\n", "data: one\n\n"}, {"data: !" + githubValue[:20], ""}, {githubValue[20:] + "\n", "data: !" + k.ph["github"] + "\n"}, {"!" + githubValue[:20], ""}, {"#\n", "!" + githubValue[:20] + "#\n"},
		},
		"application/grpc+proto": {
			{message("one"), message("one")}, {message(githubValue[:20]), message(githubValue[:20])}, {message("x" + githubValue)[:20], ""},
			{message("x" + githubValue)[20:] + message("y"), message("x"+k.ph["github"]) + message("y")}, {message(""), message("")},
		},
	} {
		r, w := io.Pipe()
		resp := k.answerTo("GET https://api.everything.test/", "everything", http.Header{"Content-Type": {kind}}, r)
		if err := k.Response(resp, nil); err != nil {
			t.Fatal(err)
		}
		last := githubValue
		if strings.Contains(kind, "grpc") {
			last = message(githubValue)
		}
		buf, send := make([]byte, 1000), make(chan string, len(steps))
		go func() {
			for text := range send {
				_, _ = io.WriteString(w, text)
			}
			_, _ = io.WriteString(w, last[:39])
			w.CloseWithError(io.ErrUnexpectedEOF)
		}()
		for _, step := range steps {
			send <- step.send
			if step.get == "" {
				continue // it waits
			}
			n, err := io.ReadAtLeast(resp.Body, buf, len(step.get))
			if err != nil || string(buf[:n]) != step.get {
				t.Fatalf("%s: after %q came %q (%v)", kind, step.send, buf[:n], err)
			}
		}
		close(send)
		if rest, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || len(bytes.Trim(rest, "\x00")) > 0 {
			t.Errorf("%s: of a body that breaks off in a value came %q (%v)", kind, rest, err)
		}
	}
}

// TestWhatWaitsTellsNothing: who writes a body and sees how much of it comes,
// when it stops or breaks off, learns nothing of a value whose beginning was
// guessed, in any spelling: the same comes for a right guess and a wrong one.
func TestWhatWaitsTellsNothing(t *testing.T) {
	k := newKit(t)
	s := k.scrubbing()
	came := func(pieces ...string) (n []int) {
		r, w := io.Pipe()
		resp := k.answerTo("GET https://free.test/", "free", http.Header{}, r)
		if err := k.Response(resp, nil); err != nil {
			t.Fatal(err)
		}
		b := resp.Body.(*scrubbed)
		go func() {
			for _, p := range pieces {
				_, _ = io.WriteString(w, p)
			}
			w.CloseWithError(io.ErrUnexpectedEOF)
		}()
		for {
			m, err := b.Read(make([]byte, 1<<16))
			if n = append(n, m); err != nil {
				return n
			}
		}
	}
	for _, lead := range []string{"", "data: ", "line\n", strings.Repeat("=", 2*s.m.longest)} {
		for i := range s.m.patterns {
			right := s.m.patterns[i].text
			for _, n := range []int{1, 2, 7, len(right) - 1} {
				guess := right[:n]
				wrong := guess[:n-1] + "\x01"
				for _, more := range [][]string{nil, {"!"}, {"!\n", "!"}} {
					if got, want := came(append([]string{lead + guess}, more...)...), came(append([]string{lead + wrong}, more...)...); !slices.Equal(got, want) {
						t.Fatalf("of %q and then %q came %v, and %v with a wrong guess", lead+guess, more, got, want)
					}
				}
			}
		}
	}
}

// TestMessagesAreReadable: gRPC compresses messages by itself, below what
// Content-Encoding says. On a pinned host it is not asked for, and refused.
func TestMessagesAreReadable(t *testing.T) {
	k := newKit(t)
	r := k.raw("POST https://api.github.test/", "Content-Type: application/grpc\nGrpc-Accept-Encoding: gzip, deflate", "")
	if _, _, err := k.send(r, "bound"); err != nil || r.Header.Get("Grpc-Accept-Encoding") != "identity" {
		t.Errorf("the server is asked for %q (%v)", r.Header.Get("Grpc-Accept-Encoding"), err)
	}
	for _, h := range []http.Header{{"Grpc-Encoding": {"gzip"}}, {"Connect-Content-Encoding": {"zstd"}}} {
		resp := k.answerTo("GET https://api.everything.test/", "everything", h, io.NopCloser(strings.NewReader("x")))
		k.refusedFor(k.Response(resp, nil), Unreadable)
		resp = k.answerTo("GET https://free.test/", "free", h, io.NopCloser(strings.NewReader("x")))
		if err := k.Response(resp, nil); err != nil {
			t.Errorf("%v of a host that has no secret: %v", h, err)
		}
	}
	resp := k.answerTo("GET https://api.everything.test/", "everything", http.Header{"Content-Type": {"application/grpc"}}, io.NopCloser(strings.NewReader("\x01\x00\x00\x00\x01x")))
	if err := k.Response(resp, nil); err != nil {
		t.Fatal(err)
	}
	_, err := io.ReadAll(resp.Body)
	k.refusedFor(err, Unreadable)
}

// TestStreamsHoldNoValue: random values in random texts, spelt and cut at
// random. What comes out never holds a value; text without values stays, and
// pieces change nothing.
func TestStreamsHoldNoValue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	letters := []string{alphanumeric, "ab", "abc+/=&%\"\\<> ", "0123456789abcdef", "\x01\x7f\xffé!"}
	text := func(n int) string {
		from := letters[rnd.IntN(len(letters))]
		b := make([]byte, n)
		for i := range b {
			b[i] = from[rnd.IntN(len(from))]
		}
		return string(b)
	}
	for round := range 150 {
		held := secrets.NewHeld()
		var values []string
		g := &Grants{from: NewIssuer(held, mark), placeholders: map[string]string{}, stored: map[string]string{}}
		for i := range 1 + rnd.IntN(3) {
			v := text(12 + rnd.IntN(40))
			if i > 0 && rnd.IntN(2) == 0 {
				v = values[0][rnd.IntN(3):] + text(rnd.IntN(5)+3) // one that begins or lies in another
			}
			values = append(values, v)
			name := strconv.Itoa(i)
			held.Put(&secrets.Current{Name: name, Value: secrets.NewValue([]byte(v))})
			g.stored[name] = name
			g.placeholders[name] = placeholder(held.Peek(name), mark)
		}
		var in strings.Builder
		with := rnd.IntN(4) > 0
		for range rnd.IntN(30) {
			if v := values[rnd.IntN(len(values))]; with {
				s := spellings(v)
				in.WriteString(s[slices.Sorted(maps.Keys(s))[rnd.IntN(len(s))]])
				if rnd.IntN(3) == 0 {
					in.WriteString(v[:rnd.IntN(len(v))])
				}
			}
			if rnd.IntN(3) > 0 {
				in.WriteString(text(rnd.IntN(60)))
			}
		}
		count := 0
		s := g.scrubbing()
		whole := s.replace(in.String(), func(n int) { count += n })
		b := &scrubbed{src: io.NopCloser(&pieces{rnd, in.String()}), resp: &http.Response{}, scrub: s, s: stream{m: s.m, wait: s.m.longest - 1, hit: func(p *pattern) (string, bool) { return s.with(p), true }}}
		if got := read(t, b); got != whole {
			t.Fatalf("round %d: in pieces it is %q, whole %q", round, got, whole)
		}
		holds := func(text string) string {
			for _, v := range values {
				for name, spelt := range spellings(v) {
					if strings.Contains(text, core(name, spelt)) && len(core(name, spelt)) >= 12 {
						return fmt.Sprintf("%s of %q", name, v)
					}
				}
			}
			return ""
		}
		found := holds(whole)
		// The end of a placeholder, which is random, may be what a value's rest lacks.
		for try := 0; found != "" && try < 10; try++ {
			other := &Grants{from: g.from, placeholders: map[string]string{}, stored: g.stored}
			for name := range g.placeholders {
				other.placeholders[name] = placeholder(held.Peek(name), mark)
			}
			found = holds(other.scrubbing().replace(in.String(), func(int) {}))
		}
		if found != "" {
			t.Fatalf("round %d: %q holds %s", round, whole, found)
		}
		if count == 0 && whole != in.String() {
			t.Fatalf("round %d: nothing was found and %q became %q", round, in.String(), whole)
		}
	}
}

// pieces gives a text in random ones.
type pieces struct {
	rnd  *rand.Rand
	text string
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+p.rnd.IntN(12))], p.text)
	p.text = p.text[n:]
	return n, nil
}

func TestCleanForLogs(t *testing.T) {
	k := newKit(t)
	in := "dial https://x/?k=" + url.QueryEscape(apiValue) + " with " + githubValue + " for " + k.ph["github"] + " and ghp_" + mark + "0123"
	got := k.Clean(in)
	for _, v := range []string{apiValue, url.QueryEscape(apiValue), githubValue, k.ph["github"], mark} {
		if strings.Contains(got, v) {
			t.Errorf("%q is in %q", v, got)
		}
	}
	if !strings.Contains(got, "[secret GITHUB_TOKEN]") || !strings.Contains(got, "[placeholder GITHUB_TOKEN]") || !strings.HasPrefix(got, "dial https://x/?k=[secret API_KEY] with ") {
		t.Errorf("it became %q", got)
	}
}
