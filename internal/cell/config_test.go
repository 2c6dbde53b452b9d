package cell

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

func TestParse(t *testing.T) {
	if c, err := Parse([]byte(`{"inner":["/runsc","run"],"stream":"socket","start_within":5}`)); err != nil || c.Stream != StreamSocket || c.startWithin().Seconds() != 5 {
		t.Fatal(c, err)
	}
	for _, bad := range []string{
		``, `{}`, `{"inner":["runsc"]}`, `{"inner":["/a"],"stream":"other"}`, `{"inner":["/a"],"unknown":1}`, `{"inner":["/a"]} {}`,
		`{"inner":["/a","b\u0000"]}`, `{"inner":["/a"],"log":"relative"}`, `{"inner":["/a"],"start_within":-1}`, `{"inner":["/a"],"start_within":4000}`,
	} {
		if _, err := Parse([]byte(bad)); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// What is asked of a cell, and what it says, is read by somebody who does not trust it.
func FuzzControl(f *testing.F) {
	f.Add([]byte(`{"version":1,"act":"dial","port":80}`))
	f.Add([]byte(`{"version":1,"failed":{"code":"x","why":"y"},"ran":{"code":3}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := ParseRequest(b); err == nil && (r.Version < 1 || r.Within < 0) {
			t.Fatal(r)
		}
		if a, err := ParseAnswer(b); err == nil && a.Version < 1 {
			t.Fatal(a)
		}
	})
}

func TestLogIsBounded(t *testing.T) {
	l := &boundedLog{}
	for range 100 {
		l.Write([]byte(strings.Repeat("x", 1000)))
	}
	l.Write([]byte("the end"))
	if s := l.last(); len(s) > tailBound || !strings.HasSuffix(s, "the end") {
		t.Fatal(len(s))
	}
}
