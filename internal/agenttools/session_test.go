package agenttools

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestMarked: what comes before the mark is told, however it arrives.
func TestMarked(t *testing.T) {
	const word, all = "\nWORD ", "out\nWOR\nput\nWORD 3\n"
	for size := 1; size <= len(all); size++ {
		var to strings.Builder
		m := &marked{word: word, to: &to}
		for rest := all; rest != ""; {
			n := min(size, len(rest))
			m.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		if !m.done() || m.tail() != "3" || to.String() != "out\nWOR\nput" {
			t.Errorf("in pieces of %d: done %v, tail %q, %q", size, m.done(), m.tail(), to.String())
		}
	}
	var to strings.Builder
	m := &marked{word: word, to: &to}
	m.Write([]byte("begun\nWOR"))
	m.flush()
	if m.done() || to.String() != "begun\nWOR" {
		t.Errorf("without its end: %q", to.String())
	}
}

// TestClip: what is cut keeps its beginning and end, and says so.
func TestClip(t *testing.T) {
	for _, n := range []int{0, 1, textMost, textMost + 1, 10 * textMost} {
		var c clip
		for range n {
			c.Write([]byte("x"))
		}
		text := c.text("how")
		if cut := strings.Contains(text, "bytes are left out here; how"); cut != (n > textMost) || strings.Count(text, "x") != min(n, textMost) {
			t.Errorf("of %d bytes there are %d, cut %v", n, strings.Count(text, "x"), cut)
		}
	}
}

func TestSchema(t *testing.T) {
	v, err := Vendor("anthropic", nil)
	if err != nil {
		t.Fatal(err)
	}
	var tools []struct{ Type, Name string }
	if err := json.Unmarshal([]byte(v.Schema()), &tools); err != nil || len(tools) != 2 || tools[0].Name != "bash" || tools[1].Name != "str_replace_based_edit_tool" {
		t.Errorf("%+v %v", tools, err)
	}
	if _, err := Vendor("nobody", nil); err == nil {
		t.Error("an unknown vendor has tools")
	}
}

func TestWithin(t *testing.T) {
	for ms, want := range map[int64]time.Duration{0: waitDefault, 1: time.Millisecond, waitMost.Milliseconds(): waitMost} {
		if d, err := within(ms); d != want || err != nil {
			t.Errorf("%d ms: %v %v", ms, d, err)
		}
	}
	for _, ms := range []int64{-1, waitMost.Milliseconds() + 1, 1 << 62} {
		if _, err := within(ms); err == nil {
			t.Errorf("%d ms are taken", ms)
		}
	}
}
