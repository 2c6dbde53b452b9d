package changes

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
)

func init() {
	acts["diff"] = func(d string) error {
		return steps(
			write(d+"/f", "1\n2\nthree\n4\n"),
			write(d+"/no-newline", "a\nb"),
			write(d+"/new", "new\n"),
			write(d+"/empty", ""),
			write(d+"/odd\t\"name\\", "odd\n"),
			func() error { return os.Remove(d + "/del") },
			func() error { return os.Chmod(d+"/mode", 0o755) },
			func() error { return os.Symlink("f", d+"/link") },
			func() error { return os.Remove(d + "/tolink") },
			func() error { return os.Symlink("f", d+"/tolink") },
			func() error { return os.MkdirAll(d+"/sub/dir", 0o755) },
			write(d+"/sub/dir/x", "x\n"),
			write(d+"/latin", "caf\xe9 two\n"),
		)
	}
	acts["diff-hostile"] = func(d string) error {
		return steps(
			write(d+"/bin", "\x00new"),
			write(d+"/large", strings.Repeat("a line\n", 200000)),
			write(d+"/escape\x1b[2J", "one \x1b]0;title\x07 \u202e two\\n\n"),
			func() error { return os.Symlink("\x1b[31m", d+"/link\u202e") },
		)
	}
}

// TestDiffApplies gives the diff to git, which must make of the workspace what
// the sandbox made of it.
func TestDiffApplies(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs tool git")
	}
	onEach(t, func(t *testing.T, dir string, opts workspace.Options) {
		ws := filepath.Join(dir, "ws")
		for _, n := range []string{"f", "no-newline", "del", "mode", "tolink"} {
			put(t, filepath.Join(ws, n), "1\n2\n3\n4\n")
		}
		put(t, filepath.Join(ws, "latin"), "caf\xe9 one\n")
		s := start(t, ws, opts)
		s.do("diff")
		set := s.end()
		var b bytes.Buffer
		must(t, Diff(ctx, s.run, set, &b, DiffOptions{}))
		cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
		cmd.Dir = ws
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CEILING_DIRECTORIES=" + dir, "HOME=/nonexistent", "GIT_CONFIG_SYSTEM=/dev/null"}
		cmd.Stdin = bytes.NewReader(b.Bytes())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git does not take the diff: %s\n%s", out, b.String())
		}
		if !opts.ForceCopy {
			same(t, remaining(t, s), nil)
		}
		got, err := os.ReadFile(filepath.Join(ws, "no-newline"))
		if err != nil || string(got) != "a\nb" {
			t.Errorf("%q %v", got, err)
		}
	})
}

func TestDiffForTerminal(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	put(t, filepath.Join(ws, "bin"), "\x00old")
	put(t, filepath.Join(ws, "large"), "small\n")
	s := start(t, ws, workspace.Options{})
	s.do("diff-hostile")
	set := s.end()
	var diff, sum, js bytes.Buffer
	must(t, Diff(ctx, s.run, set, &diff, DiffOptions{Escape: true}))
	must(t, set.WriteSummary(&sum, -1))
	for name, text := range map[string]string{"diff": diff.String(), "summary": sum.String()} {
		for _, r := range text {
			if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == '\u202e' {
				t.Errorf("the %s holds %U", name, r)
			}
		}
	}
	for _, want := range []string{"Binary files", "4 bytes, sha256 ", "Large files", "1400000 bytes", `"a/escape\033[2J"`, `one \x1b]0;title\a \u202e two\n`} {
		if !strings.Contains(diff.String(), want) {
			t.Errorf("the diff lacks %q:\n%.3000s", want, diff.String())
		}
	}
	if len(diff.String()) > 4000 {
		t.Errorf("the diff has %d bytes", diff.Len())
	}
	must(t, set.WriteJSON(&js))
	var v struct {
		Run     string
		Summary Summary
		Changes []struct{ Path, Op string }
	}
	must(t, json.Unmarshal(js.Bytes(), &v))
	if v.Run != s.run.ID() || len(v.Changes) != len(set.Changes) || v.Summary.Added != 2 || v.Summary.Modified != 2 || v.Summary.Symlinks != 1 {
		t.Errorf("%+v", v)
	}
}

func TestDiffOfChangedHost(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	for _, n := range []string{"f", "del", "dir/a", "sub/x"} {
		put(t, filepath.Join(ws, n), "base\n")
	}
	s := start(t, ws, workspace.Options{})
	s.do("edit")
	set := s.end()
	put(t, filepath.Join(ws, "f"), "host\n")
	must(t, os.Remove(filepath.Join(ws, "del")))
	var b bytes.Buffer
	must(t, Diff(ctx, s.run, set.Selected(Selection{Only: []string{"f", "del"}}), &b, DiffOptions{}))
	for _, want := range []string{"has changed meanwhile", "-base\n+sandbox\n", "deleted file mode"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the diff lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "sub/x") || strings.Contains(b.String(), "-host") {
		t.Error(b.String())
	}
}

// TestDiffOfTouchedHost: a new time alone is no change of the host's.
func TestDiffOfTouchedHost(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	for _, n := range []string{"f", "del", "dir/a", "sub/x"} {
		put(t, filepath.Join(ws, n), "base\n")
	}
	s := start(t, ws, workspace.Options{})
	s.do("edit")
	set := s.end()
	must(t, os.Chtimes(filepath.Join(ws, "f"), time.Unix(1, 0), time.Unix(1, 0)))
	put(t, filepath.Join(ws, "sub/x"), "host\n") // of the same size
	var b bytes.Buffer
	must(t, Diff(ctx, s.run, set, &b, DiffOptions{}))
	if strings.Contains(b.String(), "# f:") || !strings.Contains(b.String(), "# sub/x: the host's file has changed meanwhile") {
		t.Error(b.String())
	}
}

func init() {
	acts["diff-binary"] = func(d string) error {
		return steps(write(d+"/f", "x\x01\x9c\x02"), write(d+"/text", "caf\xe9\x1b[0m\r\n"), write(d+"/was", "text\n"))
	}
}

// TestDiffOfBinaryWithoutNUL: what no text holds is not printed.
func TestDiffOfBinaryWithoutNUL(t *testing.T) {
	for _, touched := range []bool{false, true} {
		ws := filepath.Join(t.TempDir(), "ws")
		put(t, filepath.Join(ws, "was"), "x\x01\x9d")
		s := start(t, ws, workspace.Options{})
		s.do("diff-binary")
		set := s.end()
		if touched {
			put(t, filepath.Join(ws, "was"), "host\n")
		}
		var b bytes.Buffer
		must(t, Diff(ctx, s.run, set, &b, DiffOptions{}))
		for _, want := range []string{"Binary files /dev/null and b/f differ", "# is 4 bytes", "Binary files a/was and b/was differ", "# was 3 bytes", "+caf\xe9\x1b[0m\r\n"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("the diff lacks %q:\n%q", want, b.String())
			}
		}
		if strings.ContainsAny(b.String(), "\x01\x02") {
			t.Errorf("%q", b.String())
		}
	}
}

func TestSummaryLimit(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	must(t, os.Mkdir(ws, 0o755))
	if unix.Setxattr(ws, "user.note", []byte("x"), 0) != nil {
		t.Skip("needs host user-xattr")
	}
	before(t, ws)
	s := start(t, ws, workspace.Options{})
	s.do("everything")
	set := s.end()
	var b bytes.Buffer
	must(t, set.WriteSummary(&b, 2))
	for _, want := range []string{"… and 30 more", "! git_hook", ".git/hooks/pre-commit", "! link_outside"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, b.String())
		}
	}
}

func TestSummaryBoundsMarks(t *testing.T) {
	set := &Set{}
	for i := range 1500 {
		set.Changes = append(set.Changes, Change{Path: "venv/" + itoa(i), Op: Added, Is: File, Marks: []Mark{{"installed_code", "why"}}})
	}
	set.Changes = append(set.Changes, Change{Path: ".envrc", Op: Added, Is: File, Marks: []Mark{{"direnv", "why"}}})
	var short, all bytes.Buffer
	must(t, set.WriteSummary(&short, 2))
	must(t, set.WriteSummary(&all, -1))
	for _, want := range []string{"… and 1490 more: `bailey changes --summary`", "! direnv", "      .envrc"} {
		if !strings.Contains(short.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, short.String())
		}
	}
	if n := strings.Count(short.String(), "\n"); n > 20 {
		t.Errorf("the summary has %d lines", n)
	}
	if n := strings.Count(all.String(), "venv/"); n != 3000 {
		t.Errorf("all of it names %d paths", n)
	}
}

// BenchmarkMany takes 100,000 files through scan, apply and revert:
//
//	go test -run '^$' -bench Many -benchtime 1x ./internal/changes
func BenchmarkMany(b *testing.B) {
	const n = 100000
	name := func(i int) string {
		return filepath.Join("d"+string(rune('a'+i%26)), "e"+string(rune('a'+i/26%26)), "f"+strings.Repeat("x", 5)+itoa(i))
	}
	acts["many"] = func(d string) error {
		for i := 0; i < n; i++ {
			p := filepath.Join(d, name(i))
			var err error
			switch i % 3 {
			case 0:
				err = os.WriteFile(p, []byte("sandbox "+itoa(i)+"\n"), 0o644)
			case 1:
				err = os.Remove(p)
			default:
				err = os.WriteFile(p+".new", []byte("new "+itoa(i)+"\n"), 0o644)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for range b.N {
		b.StopTimer()
		ws := filepath.Join(b.TempDir(), "ws")
		for i := 0; i < n; i++ {
			p := filepath.Join(ws, name(i))
			if i < 26*26 {
				os.MkdirAll(filepath.Dir(p), 0o755)
			}
			must(b, os.WriteFile(p, []byte("base "+itoa(i)+"\n"), 0o644))
		}
		s := start(b, ws, workspace.Options{})
		s.do("many")
		b.StartTimer()
		lap := stopwatch(b)
		live, err := scan(ctx, s.run, nil)
		must(b, err)
		lap("s/scan")
		if len(live.Changes) != n {
			b.Fatal(len(live.Changes))
		}
		set := s.end()
		lap("s/seal")
		var out bytes.Buffer
		must(b, Diff(ctx, s.run, set, &out, DiffOptions{}))
		lap("s/diff")
		r, err := Apply(ctx, s.run, set, ApplyOptions{})
		must(b, err)
		if !r.Complete() {
			b.Fatal(r)
		}
		lap("s/apply")
		r, err = Revert(ctx, s.run)
		must(b, err)
		if !r.Complete() {
			b.Fatal(r)
		}
		lap("s/revert")
		must(b, Discard(s.run))
		lap("s/discard")
	}
}

func TestSelectedChangesAreShown(t *testing.T) {
	set := &Set{Run: "x", Changes: []Change{{Path: "a", Op: Added, Is: File}, {Path: "b/c", Op: Added, Is: File}}}
	var b bytes.Buffer
	must(t, set.Selected(Selection{Except: []string{"b"}}).WriteSummary(&b, -1))
	if got := b.String(); !strings.Contains(got, "1 added") || strings.Contains(got, "b/c") {
		t.Errorf("%q", got)
	}
}
