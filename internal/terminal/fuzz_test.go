package terminal

import (
	"bytes"
	"io"
	"math/rand"
	"regexp"
	"testing"
	"unicode/utf8"
)

// forbidden finds, in what a Filter lets through, what must never be there,
// by means other than the Filter's own parser.
var forbidden = regexp.MustCompile(`\x05` +
	`|\x1b\]0*(52|50|3|7|99|633|1337|5113|5522|21)(;|\x07|\x1b)` +
	`|\x1b\](?:[^0-9]|$)` +
	`|\x1b\[[0-9;:<=>?]*i` +
	`|\x1b\[[<=>?]?0*(?:2[01]|[1-9]|10)(?:;[0-9;]*)?t` +
	`|\x1bP[0-9;]*[^0-9;q=]` +
	`|\x1b[X^]` +
	`|\x1b_[^G]` +
	`|\x1b_G[^\x1b;]*t=[^d]` +
	`|\x1b\]8;[^;]*;(?:file|javascript|data)` +
	`|\x1b%[^G]|\x1bG` +
	`|\x1b\[[0-9;]*\*[yz]`)

func FuzzFilter(f *testing.F) {
	for _, c := range filterCases {
		f.Add([]byte(c.in), int64(len(c.in)))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed int64) {
		if len(in) > 1<<16 {
			return
		}
		want := run(t, string(in))
		if got := run(t, split(string(in), rand.New(rand.NewSource(seed)))...); got != want {
			t.Fatalf("%q\n in pieces %q\n at once   %q", in, got, want)
		}
		if m := forbidden.FindString(want); m != "" {
			t.Fatalf("%q\n lets %q through in %q", in, m, want)
		}
		for s := want; s != ""; {
			r, n := utf8.DecodeRuneInString(s)
			if r == utf8.RuneError && n == 1 && introducer(rune(s[0])) || introducer(r) {
				t.Fatalf("%q\n lets an 8-bit introducer through in %q", in, want)
			}
			s = s[n:]
		}
		// What has passed once passes again, unchanged but for what belongs to
		// a new stream: the saved title, and pops that have nothing to pop.
		var out bytes.Buffer
		g := NewFilter(&out)
		io.WriteString(g, want)
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if m := forbidden.FindString(out.String()); m != "" {
			t.Fatalf("the second pass adds %q", m)
		}
	})
}

func FuzzPrintable(f *testing.F) {
	for _, c := range printableCases {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, got := range []string{Printable(in), PrintableText(in, `\`), Shorten(in, 40)} {
			if !utf8.ValidString(got) {
				t.Fatalf("%q gives invalid %q", in, got)
			}
			for _, r := range got {
				if r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
					t.Fatalf("%q gives %q with %U", in, got, r)
				}
			}
		}
		if n := utf8.RuneCountInString(Shorten(in, 40)); n > 40+40 {
			t.Fatalf("Shorten gives %d characters", n)
		}
	})
}
