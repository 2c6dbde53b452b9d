package build

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// FuzzDockerfile reads files that anybody may send: each is an error of the file's
// or stages, and never more.
func FuzzDockerfile(f *testing.F) {
	for _, s := range []string{"FROM scratch\nCOPY a /b\n", "ARG A=1\nFROM x:$A AS y\nRUN <<EOF\na\nEOF\n", "FROM a\nRUN --mount=type=cache,target=/x y\nHEALTHCHECK CMD x\n",
		"# escape=`\nFROM a\nENV a=b c=\"d e\"\nEXPOSE 1-2/udp\n", "FROM a\nONBUILD RUN x\nSHELL [\"a\"]\nADD --checksum=sha256:0 http://x/y /z\n", "FROM a\nCOPY <<A <<B /c/\n1\nA\n2\nB\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := parse("Dockerfile", []byte(text))
		if err != nil {
			if bailey.CodeOf(err) != bailey.CodeUsage {
				t.Errorf("%v", err)
			}
			return
		}
		b := &builder{file: x, used: map[string]bool{}, Options: Options{Each: func(p api.Progress) {}}}
		if b.global, err = b.globals(); err != nil {
			return
		}
		s := &stage{b: b, config: emptyConfig()}
		for _, def := range x.stages {
			for _, c := range def.Commands {
				if err := s.configure(c); err != nil && strings.Contains(err.Error(), "panic") {
					t.Error(err)
				}
			}
		}
	})
}

// FuzzIgnore reads patterns: none may take long or panic.
func FuzzIgnore(f *testing.F) {
	f.Add("a\n!b/**\n**/*.c\n[a-z]?\n\\", "a/b/c.c")
	f.Fuzz(func(t *testing.T, text, name string) {
		if g, err := parseIgnore([]byte(text)); err == nil {
			g.hides(name)
		}
	})
}
