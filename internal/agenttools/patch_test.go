package agenttools

import (
	"strings"
	"testing"
)

func TestPatch(t *testing.T) {
	const text = "func a() {\n\tone\n\tsame\n}\n\nfunc b() {\n\ttwo\n\tsame\n}\n"
	for _, tc := range []struct{ name, text, diff, want string }{
		{"replace", text, "@@\n \tone\n-\tsame\n+\tother\n }\n", strings.Replace(text, "same", "other", 1)},
		{"below an anchor", text, "@@ func b() {\n \ttwo\n-\tsame\n+\tother\n", "func a() {\n\tone\n\tsame\n}\n\nfunc b() {\n\ttwo\n\tother\n}\n"},
		{"an anchor decides", text, "@@ func b() {\n-\tsame\n", "func a() {\n\tone\n\tsame\n}\n\nfunc b() {\n\ttwo\n}\n"},
		{"two anchors", text, "@@ func b() {\n@@ \ttwo\n+\tnew\n", strings.Replace(text, "\ttwo\n", "\ttwo\n\tnew\n", 1)},
		{"two places", text, "@@\n-\tone\n+\t1\n@@\n-\ttwo\n+\t2\n", strings.NewReplacer("one", "1", "two", "2").Replace(text)},
		{"without a head", text, "-\tone\n+\t1", strings.Replace(text, "one", "1", 1)},
		{"white space is the file's", "a  \n\tb\nc\n", " a\n b\n-c\n+d\n", "a  \n\tb\nd\n"},
		{"exact before near", " x\nx\n", "-x\n+y\n", " x\ny\n"},
		{"the end", "x\ny\nx\n", "-x\n+z\n*** End of File\n", "x\ny\nz\n"},
		{"only lines that come", "x\n", "+y\n", "x\ny\n"},
		{"an empty line without its sign", "x\n\ny\n", " x\n\n-y\n+z\n", "x\n\nz\n"},
		{"no end of the last line", "x\ny", " x\n-y\n+z\n", "x\nz"},
		{"all goes", "x\n", "-x\n", ""},
		{"into an empty file", "", "+x\n", "x\n"},
	} {
		if got, err := applyPatch(tc.text, tc.diff); err != nil || got != tc.want {
			t.Errorf("%s: %q %v, want %q", tc.name, got, err, tc.want)
		}
	}
	for _, tc := range []struct{ name, diff, want string }{
		{"not there", "-three\n", "not in it"},
		{"out of order", "@@\n-\ttwo\n@@\n-\tone\n", "before what was changed already"},
		{"no such anchor", "@@ func c() {\n-\tone\n", `the line "func c() {"`},
		{"not the end", "-\tone\n*** End of File\n", "not in it"},
		{"no sign", "one\n", "has no sign"},
		{"an anchor alone", "@@ func a() {\n", "is the last line"},
		{"an end alone", "*** End of File\n", "ends nothing"},
		{"nothing", "@@\n", "it changes nothing"},
		{"a unified diff's head", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n", "is the last line"},
		{"a whole patch", "*** Begin Patch\n", "has no sign"},
	} {
		if got, err := applyPatch(text, tc.diff); err == nil || !strings.Contains(err.Error(), tc.want) || got != "" {
			t.Errorf("%s: %q %v, want %q", tc.name, got, err, tc.want)
		}
	}
	if got, err := created("+a\n+\n+b"); got != "a\n\nb\n" || err != nil {
		t.Errorf("a new file: %q %v", got, err)
	}
	if _, err := created("+a\nb\n"); err == nil {
		t.Error("a new file has a line without its sign")
	}
}

// FuzzPatch: no diff breaks it, and one that replaces all lines does so.
func FuzzPatch(f *testing.F) {
	f.Add("x\ny\n", "@@ x\n-y\n+z\n*** End of File\n")
	f.Add("x", "+y\n")
	f.Add("", "\n\n@@\n")
	f.Fuzz(func(t *testing.T, text, diff string) {
		if got, err := applyPatch(text, diff); err != nil && got != "" {
			t.Errorf("%q with the error %v", got, err)
		}
		if text == "" || !strings.HasSuffix(text, "\n") {
			return
		}
		var all strings.Builder
		for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			all.WriteString("-" + l + "\n")
		}
		if got, err := applyPatch(text, all.String()+"+new\n"); err != nil || got != "new\n" {
			t.Errorf("%q with all lines replaced: %q %v", text, got, err)
		}
	})
}
