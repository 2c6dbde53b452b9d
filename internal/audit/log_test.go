package audit

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

func open(t testing.TB, dir string, opt Options) *Log {
	t.Helper()
	l, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// read gives all records of a log and checks that they are one chain.
func read(t testing.TB, dir string) (list []*Record) {
	t.Helper()
	r, err := OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	prev := strings.Repeat("0", 64)
	for {
		line, err := r.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		rec, err := Parse(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if rec.Prev != prev {
			t.Fatalf("record %d does not follow on the one before it", rec.Seq)
		}
		prev = rec.Hash
		list = append(list, rec)
	}
}

func kinds(list []*Record) (k []string) {
	for _, r := range list {
		k = append(k, r.Kind)
	}
	return k
}

func TestAppendAndRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	a, b := open(t, dir, Options{SegmentSize: 2000}), open(t, dir, Options{SegmentSize: 2000})
	var group sync.WaitGroup
	var mu sync.Mutex
	got := map[int64]string{}
	for i, l := range []*Log{a, b, a, b} {
		group.Go(func() {
			for range 50 {
				r := &Record{Kind: KindExec, Sandbox: "s", Exec: NewExec("x", []string{"true", "a"})}
				if err := l.Append(r); err != nil {
					t.Error(i, err)
				}
				mu.Lock()
				got[r.Seq] = r.Hash
				mu.Unlock()
			}
		})
	}
	group.Wait()
	n := 0
	for _, r := range read(t, dir) {
		if r.Kind == KindExec {
			n++
			if got[r.Seq] != r.Hash || r.Exec.Arguments != 1 || r.Exec.Program != "true" {
				t.Errorf("%+v", r)
			}
		}
	}
	if n != 200 || len(got) != 200 {
		t.Errorf("%d records, %d acknowledged", n, len(got))
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Append(&Record{Kind: KindExec}); bailey.CodeOf(err) != bailey.CodeAudit {
		t.Error(err)
	}
}

// Whatever a sandbox gives as a name, a line is one line of plain ASCII, of
// bounded length, and JSON.
func TestHostileText(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	huge := strings.Repeat("\u202e\x1b[2J", 200_000)
	many := make([]string, 1000)
	for i := range many {
		many[i] = huge
	}
	for _, s := range []string{"\x1b[31m", "a\nb\r\x00\x7f", "\u202e\u2028\ufeff", "\xff\xfe", "😀", `"\`, "", huge} {
		if err := l.Append(&Record{Kind: "http", Reason: s, Egress: &Egress{Host: s, Path: s, Query: many, Steps: many, Secrets: []string{s}}, Detail: map[string]string{s: s, "a": s}}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for n := 0; ; n++ {
		line, err := r.Next()
		if err == io.EOF {
			if n != 8 {
				t.Error(n)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(line) >= MaxLine || !json.Valid(line) {
			t.Errorf("a line of %d bytes", len(line))
		}
		for _, c := range line {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("the byte %#x is in a line", c)
			}
		}
		if _, err := Parse(line); err != nil {
			t.Error(err)
		}
	}
}
