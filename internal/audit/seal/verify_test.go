package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
)

// home is a data folder with a log of several segments and checkpoints.
type home struct {
	t           *testing.T
	audit, keys string
}

func newHome(t *testing.T) home {
	dir := t.TempDir()
	return home{t, filepath.Join(dir, "audit"), filepath.Join(dir, "keys")}
}

// write appends n records as one writer, which signs at its end.
func (h home) write(n int, sign bool) {
	h.t.Helper()
	opt := audit.Options{SegmentSize: 3000, Every: 7}
	if sign {
		key, err := OpenKey(h.keys)
		if err != nil {
			h.t.Fatal(err)
		}
		defer key.Close()
		opt.Signer = key
	}
	l, err := audit.Open(h.audit, opt)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range n {
		if err := l.Append(&audit.Record{Kind: "http", Sandbox: "s", Decision: "allow", Egress: &audit.Egress{Host: "h" + strconv.Itoa(i)}}); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		h.t.Fatal(err)
	}
}

func (h home) verify() *Report {
	h.t.Helper()
	rep, err := Verify(h.audit, h.keys, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return rep
}

func (h home) segments() []string {
	list, err := filepath.Glob(filepath.Join(h.audit, "*.log"))
	if err != nil || len(list) < 3 {
		h.t.Fatal(list, err)
	}
	return list
}

// edit changes the lines of a segment.
func (h home) edit(segment string, change func(lines []string) []string) {
	h.t.Helper()
	b, err := os.ReadFile(segment)
	if err != nil {
		h.t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	if err := os.WriteFile(segment, []byte(strings.Join(change(lines[:len(lines)-1]), "")), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// rehash makes the lines behind from one chain again, as somebody without the
// key would.
func rehash(lines []string, from int) []string {
	prev, _ := audit.Parse([]byte(strings.TrimSpace(lines[from-1])))
	last := prev.Hash
	for i := from; i < len(lines); i++ {
		body := lines[i][:strings.Index(lines[i], `,"prev":"`)] + `,"prev":"` + last + `"`
		raw, _ := hex.DecodeString(last)
		sum := sha256.Sum256(append(raw, body+"}"...))
		last = hex.EncodeToString(sum[:])
		lines[i] = body + `,"hash":"` + last + "\"}\n"
	}
	return lines
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func TestTampering(t *testing.T) {
	last := func(h home) string { s := h.segments(); return s[len(s)-1] }
	for _, tc := range []struct {
		name   string
		tamper func(h home)
		seq    int64 // 0: whichever
		says   string
	}{
		{"a byte flipped", func(h home) {
			h.edit(h.segments()[0], func(l []string) []string { l[2] = strings.Replace(l[2], `"h2"`, `"h9"`, 1); return l })
		}, 3, "its hash is not that of its content"},
		{"a line that is none", func(h home) {
			h.edit(h.segments()[0], func(l []string) []string { l[2] = "{}\n"; return l })
		}, 3, "no record"},
		{"a line deleted", func(h home) {
			h.edit(h.segments()[0], func(l []string) []string { return append(l[:2:2], l[3:]...) })
		}, 3, "records 3 to 3 are missing"},
		{"a line repeated", func(h home) {
			h.edit(h.segments()[0], func(l []string) []string { return append(l[:3:3], l[2:]...) })
		}, 4, "repeated or out of order"},
		{"lines swapped", func(h home) {
			h.edit(h.segments()[0], func(l []string) []string { l[2], l[3] = l[3], l[2]; return l })
		}, 3, "missing"},
		{"the tail cut", func(h home) {
			h.edit(last(h), func(l []string) []string { return l[:len(l)-1] })
		}, 0, "missing at the end"},
		{"the tail cut and the head removed", func(h home) {
			h.edit(last(h), func(l []string) []string { return l[:len(l)-1] })
			os.Remove(filepath.Join(h.audit, "head"))
		}, 0, "the head is missing"},
		{"the end of a segment cut", func(h home) {
			h.edit(h.segments()[0], func(l []string) []string { return l[:len(l)-1] })
		}, 0, "a segment was removed or cut"},
		{"the first segment removed", func(h home) { os.Remove(h.segments()[0]) }, 1, "a segment was removed"},
		{"a segment removed", func(h home) { os.Remove(h.segments()[1]) }, 0, "a segment was removed"},
		{"the last segment removed", func(h home) { os.Remove(last(h)) }, 0, "missing at the end"},
		{"all segments removed", func(h home) {
			for _, s := range h.segments() {
				os.Remove(s)
			}
		}, 1, "missing at the end"},
		{"the rest hashed again without the key", func(h home) {
			h.edit(h.segments()[0], func(l []string) []string {
				l[2] = strings.Replace(l[2], `"h2"`, `"h9"`, 1)
				return rehash(l, 2)
			})
		}, 8, "signature is wrong"},
		{"a checkpoint forged with another key", func(h home) {
			forged := newHome(h.t)
			forged.write(1, true)
			other, _ := OpenKey(forged.keys)
			defer other.Close()
			h.edit(h.segments()[0], func(l []string) []string {
				r, _ := audit.Parse([]byte(strings.TrimSpace(l[7])))
				c, _ := other.Sign(r.Seq, r.Prev)
				l[7] = strings.NewReplacer(r.Checkpoint.Key, c.Key, r.Checkpoint.Signature, c.Signature).Replace(l[7])
				return rehash(l, 7)
			})
		}, 8, "another key"},
		{"an old copy put in place", func(h home) { copyFolder(h.t, h.audit+".old", h.audit) }, 0, "an old copy put in its place"},
		{"another log with the same key", func(h home) {
			copyFolder(h.t, h.keys, filepath.Dir(h.audit)+"/k2")
			o := home{h.t, h.audit + "2", filepath.Dir(h.audit) + "/k2"}
			os.Remove(filepath.Join(o.keys, lastName))
			os.Chmod(filepath.Join(o.keys, keyName), 0o600)
			o.write(60, true)
			copyFolder(h.t, o.audit, h.audit)
		}, 0, "rewritten or replaced"},
		{"what was signed last changed", func(h home) { os.WriteFile(filepath.Join(h.keys, lastName), []byte("x"), 0o600) }, 0, "signed last"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHome(t)
			h.write(10, true)
			copyFolder(t, h.audit, h.audit+".old")
			h.write(30, true)
			if rep := h.verify(); rep.Fault != nil || rep.Records < 40 || rep.Signed != rep.Last-1 || len(rep.Gaps) > 0 {
				t.Fatalf("before: %+v %+v", rep, rep.Fault)
			}
			tc.tamper(h)
			rep := h.verify()
			if rep.Fault == nil || tc.seq != 0 && rep.Fault.Seq != tc.seq || !strings.Contains(rep.Fault.Why, tc.says) {
				t.Errorf("got %+v, want %q at %d", rep.Fault, tc.says, tc.seq)
			}
		})
	}
}

// A writer that finds the end cut off writes down what is missing, and goes on.
func TestWriterRecordsWhatWasCut(t *testing.T) {
	h := newHome(t)
	h.write(30, true)
	last := h.verify().Last
	segments := h.segments()
	h.edit(segments[len(segments)-1], func(l []string) []string { return l[:len(l)-1] })
	h.write(5, true)
	rep := h.verify()
	if rep.Fault == nil || rep.Fault.Seq != last || len(rep.Gaps) != 1 || rep.Gaps[0].Why != audit.GapLost || rep.Gaps[0].To != last || rep.Last < last+6 {
		t.Errorf("%+v %+v", rep, rep.Fault)
	}
}

func TestBundle(t *testing.T) {
	h := newHome(t)
	h.write(20, true)
	begin := time.Now()
	h.write(20, true)
	key, err := OpenKey(h.keys)
	if err != nil {
		t.Fatal(err)
	}
	defer key.Close()
	for _, since := range []time.Time{{}, begin} {
		var out bytes.Buffer
		n, err := key.Export(&out, h.audit, since)
		if err != nil || n < 20 || since.IsZero() != (n > 40) {
			t.Fatal(n, err)
		}
		whole := out.String()
		lines := strings.SplitAfter(whole, "\n")
		lines = lines[:len(lines)-1]
		for name, b := range map[string]string{
			"":                  whole,
			"a byte changed":    strings.Replace(whole, `"host":"h1`, `"host":"hX`, 1),
			"the start cut":     lines[0] + strings.Join(lines[2:], ""),
			"the end cut":       strings.Join(lines[:len(lines)-1], ""),
			"the last line cut": whole[:len(whole)-1],
			"more at the end":   whole + lines[len(lines)-1],
			"another first":     strings.Replace(whole, `"first":`, `"first":1`, 1),
		} {
			rep, err := VerifyBundle(strings.NewReader(b), nil)
			if err != nil || (rep.Fault == nil) != (name == "") {
				t.Errorf("%s: %+v %v", name, rep, err)
			}
			if name == "" && (rep.Records != n || rep.Key != hex.EncodeToString(key.Public())) {
				t.Errorf("%+v", rep)
			}
		}
		if rep, err := VerifyBundle(strings.NewReader(whole), make([]byte, 32)); err != nil || rep.Fault == nil {
			t.Errorf("with another key: %+v %v", rep, err)
		}
	}
	if _, err := key.Export(&bytes.Buffer{}, h.audit, time.Now().Add(time.Hour)); err != ErrNothing {
		t.Error(err)
	}
	if rep, err := Verify(h.audit, "", key.Public()); err != nil || rep.Fault != nil {
		t.Errorf("a copy without keys: %+v %v", rep, err)
	}
}

// The key is the owner's alone, is made once, and is refused when others could
// have read it.
func TestKey(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	got := make(chan string, 8)
	for range cap(got) {
		go func() {
			k, err := OpenKey(keys)
			if err != nil {
				got <- err.Error()
				return
			}
			k.Close()
			got <- string(k.Public())
		}()
	}
	first := <-got
	for range cap(got) - 1 {
		if k := <-got; k != first {
			t.Errorf("%q", k)
		}
	}
	for _, name := range []string{keyName, lastName} {
		if fi, err := os.Stat(filepath.Join(keys, name)); err != nil || fi.Mode() != 0o600 {
			t.Error(fi.Mode(), err)
		}
	}
	if err := os.Chmod(filepath.Join(keys, keyName), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKey(keys); err == nil {
		t.Error("a key that others can read was used")
	}
}
