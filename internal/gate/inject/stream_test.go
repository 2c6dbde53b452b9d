package inject

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
)

// TestStreamedBodiesAreSearched: a placeholder in the middle of a body of
// unknown length, in pieces, ends it before any of the placeholder has gone
// (S13); in a trailer too.
func TestStreamedBodiesAreSearched(t *testing.T) {
	k := newKit(t)
	for name, text := range map[string]string{"plain": k.ph["github"], "base64": base64.StdEncoding.EncodeToString([]byte("u:" + k.ph["github"])), "another's": "ghp_" + mark} {
		for _, slow := range []bool{false, true} {
			lead := strings.Repeat("ghp_harmless ", 50_000)
			var in io.Reader = strings.NewReader(lead + text + " more")
			if slow {
				in = iotest.HalfReader(in)
			}
			r := k.raw("POST https://free.test/", "", "")
			r.Body, r.ContentLength = io.NopCloser(in), -1
			if _, err := k.Request(t.Context(), r, k.act(r), k.rule("free")); err != nil {
				t.Fatal(err)
			}
			sent, err := io.ReadAll(r.Body)
			var refused *act.Refused
			if !errors.As(err, &refused) {
				t.Fatalf("%s: the body ended with %v", name, err)
			}
			if n := len(sent) - len(lead); n > 4 || strings.Contains(string(sent), text[4:]) {
				t.Errorf("%s: %d bytes behind the lead were sent", name, n)
			}
			if _, err := r.Body.Read(make([]byte, 10)); !errors.As(err, &refused) {
				t.Errorf("%s: after the refusal: %v", name, err)
			}
		}
	}
	r := k.raw("POST https://free.test/", "", "")
	r.Body, r.ContentLength, r.Trailer = io.NopCloser(strings.NewReader("x")), -1, http.Header{"X-T": {k.ph["github"]}}
	if _, err := k.Request(t.Context(), r, k.act(r), k.rule("free")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r.Body); err == nil {
		t.Error("a placeholder in a trailer went")
	}
	// A body that is too large to be filled is searched.
	r = k.raw("POST https://api.everything.test/", "Content-Type: application/json", "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`["`+strings.Repeat("x", maxBody)+k.ph["api"]+`"]`)), -1
	if _, err := k.Request(t.Context(), r, k.act(r), k.rule("everything")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r.Body); err == nil {
		t.Error("a placeholder in a body that is too large went")
	}
}

func TestOpaqueStreams(t *testing.T) {
	k := newKit(t)
	look := k.Opaque()
	text := "USER x\r\nPASS " + k.ph["github"] + "\r\n"
	var err error
	for i := range text {
		if err = look([]byte(text[i : i+1])); err != nil {
			if i < strings.Index(text, k.ph["github"])+len(k.ph["github"])-1 {
				t.Errorf("it was refused at byte %d", i)
			}
			break
		}
	}
	k.refusedFor(err, Misdirected)
	if look([]byte("x")) == nil {
		t.Error("the stream goes on after a refusal")
	}
	free := k.Opaque()
	for range 1000 {
		if err := free([]byte("ghp_ nothing of interest QW7MARK")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMessages: a Discord client's identify frame (T63).
func TestMessages(t *testing.T) {
	k := newKit(t)
	r := k.raw("GET https://api.everything.test/gateway", "", "")
	identify := `{"op":2,"d":{"token":"` + k.ph["api"] + `","properties":{"os":"linux"}}}`
	out, err := k.Outgoing([]byte(identify), k.act(r), k.rule("everything"))
	if want := strings.Replace(identify, k.ph["api"], quoted(apiValue, false), 1); err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
	for name, text := range map[string]string{"a text": "token " + k.ph["api"], "a key": `{"` + k.ph["api"] + `":1}`, "another": `{"token":"` + k.ph["github"] + `"}`} {
		_, err := k.Outgoing([]byte(text), k.act(r), k.rule("everything"))
		if !k.refusedFor(err, Misdirected) {
			t.Errorf("that was %s", name)
		}
	}
	free := k.raw("GET https://free.test/", "", "")
	_, err = k.Outgoing([]byte(identify), k.act(free), k.rule("free"))
	k.refusedFor(err, Misdirected)
	if out, err := k.Outgoing([]byte("hello\xff"), k.act(free), k.rule("free")); err != nil || string(out) != "hello\xff" {
		t.Errorf("a harmless one: %v %q", err, out)
	}
	n := 0
	if got := k.Incoming([]byte(`{"you sent":"`+quoted(apiValue, true)+`"}`), func(c int) { n += c }); string(got) != `{"you sent":"`+k.ph["api"]+`"}` || n != 1 {
		t.Errorf("an echo is %s", got)
	}
}
