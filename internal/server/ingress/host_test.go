package ingress

import (
	"strconv"
	"strings"
	"testing"
)

func TestTarget(t *testing.T) {
	for _, c := range []struct {
		host      string
		port      int
		ref       string
		below, ok bool
	}{
		{"3000-abc.boxes.test", 3000, "abc", true, true},
		{"3000-ABC.Boxes.Test:8443", 3000, "abc", true, true},
		{"3000-abc.boxes.test.", 3000, "abc", true, true},
		{"1-my-name.boxes.test", 1, "my-name", true, true},
		{"65536-abc.boxes.test", 0, "", true, false},
		{"0-abc.boxes.test", 0, "", true, false},
		{"03000-abc.boxes.test", 0, "", true, false},
		{"+3000-abc.boxes.test", 0, "", true, false},
		{"3000.boxes.test", 0, "", true, false},
		{"3000-.boxes.test", 0, "", true, false},
		{"3000--a.boxes.test", 0, "", true, false},
		{"3000-a_b.boxes.test", 0, "", true, false},
		{"3000-a.b.boxes.test", 0, "", true, false},
		{"3000-a/../b.boxes.test", 0, "", true, false},
		{"boxes.test", 0, "", false, false},
		{"3000-abcboxes.test", 0, "", false, false},
		{"3000-abc.boxes.test.evil.test", 0, "", false, false},
		{"127.0.0.1:80", 0, "", false, false},
		{"[::1]:80", 0, "", false, false},
		{"", 0, "", false, false},
	} {
		port, ref, below, ok := Target(c.host, "boxes.test")
		if port != c.port || ref != c.ref || below != c.below || ok != c.ok {
			t.Errorf("%q: %d %q %t %t", c.host, port, ref, below, ok)
		}
	}
	if _, _, below, ok := Target("3000-abc", ""); below || ok {
		t.Error("without a domain nothing is below it")
	}
}

// FuzzTarget: whatever a Host header is, what is made of it is a port and a reference
// that lead to the same host name again.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"3000-abc.boxes.test", "3000-ABC.boxes.test:1", "[::1]:80", "1-a-.boxes.test", "9-\xff.boxes.test", "3000-a\u212a.boxes.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		port, ref, below, ok := Target(host, "boxes.test")
		if !ok {
			return
		}
		name := strconv.Itoa(port) + "-" + ref + ".boxes.test"
		if !below || port < 1 || port > 65535 || strings.Trim(ref, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Fatalf("%q: %d %q", host, port, ref)
		}
		if p, r, _, again := Target(name, "boxes.test"); !again || p != port || r != ref {
			t.Fatalf("%q leads to %q, and that to %d %q", host, name, p, r)
		}
	})
}

func TestTakeLink(t *testing.T) {
	for query, want := range map[string][2]string{
		"":                                 {"", ""},
		"a=1&b":                            {"", "a=1&b"},
		"bailey_token=x":                   {"x", ""},
		"a&bailey_token=x%2e&b=%zz;&":      {"x.", "a&b=%zz;&"},
		"bailey_token=x&bailey_token=y&&c": {"x", "&c"},
		"%62ailey_token=x":                 {"x", ""},
		"bailey_token":                     {"", ""},
		"BAILEY_TOKEN=x":                   {"", "BAILEY_TOKEN=x"},
	} {
		if value, rest := takeLink(query); value != want[0] || rest != want[1] {
			t.Errorf("%q: %q %q", query, value, rest)
		}
	}
}
