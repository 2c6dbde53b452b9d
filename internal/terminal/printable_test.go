package terminal

import (
	"strings"
	"testing"
)

var printableCases = []struct{ name, in, want string }{
	{"plain", "src/main.go", "src/main.go"},
	{"empty", "", ""},
	{"letters", "größe 漢字 ж", "größe 漢字 ж"},
	{"escape", "a\x1b[31mb", `a\x1b[31mb`},
	{"line ends", "a\nb\r\tc", `a\nb\r\tc`},
	{"what looks escaped", `a\x1bb`, `a\\x1bb`},
	{"bidi", "gpj\u202eexe", `gpj\u202eexe`},
	{"isolates", "\u2066x\u2069", `\u2066x\u2069`},
	{"invisible", "a\u200bb\u00adc\ufeff", `a\u200bb\u00adc\ufeff`},
	{"line separator", "a\u2028b\u2029", `a\u2028b\u2029`},
	{"C1", "\u009b31m", `\u009b31m`},
	{"invalid", "a\xff\x9bb", `a\xff\x9bb`},
	{"tags", "\U000e0041", `\U000e0041`},
	{"private", "\ue000", `\ue000`},
	{"delete", "a\x7f", `a\x7f`},
	{"accent", "e\u0301", "e\u0301"},
	{"accent without a letter", "\u0301e", `\u0301e`},
	{"stack of accents", "e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301\u0301\u0301" + `\u0301`},
	{"the replacement character itself", "\ufffd", "\ufffd"},
}

func TestPrintable(t *testing.T) {
	for _, c := range printableCases {
		t.Run(c.name, func(t *testing.T) {
			if got := Printable(c.in); got != c.want {
				t.Errorf("Printable(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
	seen := map[string]string{}
	for _, c := range printableCases {
		p := Printable(c.in)
		if other, ok := seen[p]; ok {
			t.Errorf("%q and %q look the same", c.in, other)
		}
		seen[p] = c.in
	}
}

func TestPrintableText(t *testing.T) {
	for _, c := range []struct{ in, keep, want string }{
		{"a\tb\nc\x1b[2J\\\n", "\n\t\\", "a\tb\nc\\x1b[2J\\\n"},
		{"a\\b\n", "\\", `a\b\n`},
		{"\n\u0301x", "\n", "\n\\u0301x"}, // a mark with nothing to stand on
	} {
		if got := PrintableText(c.in, c.keep); got != c.want {
			t.Errorf("%q keeping %q: got %q, want %q", c.in, c.keep, got, c.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly 10", 10, "exactly 10"},
		{"longer than that", 6, "longer… (10 bytes more)"},
		{"ab\x1b\x1b", 7, `ab\x1b… (1 bytes more)`},
		{strings.Repeat("x", 1<<20), 3, "xxx… (1048573 bytes more)"},
	} {
		if got := Shorten(c.in, c.limit); got != c.want {
			t.Errorf("Shorten(%.20q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}
