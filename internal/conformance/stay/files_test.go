//go:build linux

package stay

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// noise gives n bytes that no compression makes smaller, the same each time.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(int64(n))).Read(b)
	return b
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestWritesAreWhatTheAnswerSays is T34 and T36: size and hash in the answer are
// those of what is there, whatever the size and whichever way it came; and a large
// file is not held in the daemon's memory.
func TestWritesAreWhatTheAnswerSays(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		for _, level := range levels {
			name := level.String()
			b := makes(t, d, api.SandboxSpec{Name: name, Isolation: level})
			inside := func(path string) string {
				sum, _, _ := strings.Cut(y.Must("exec", name, "--", "sha256sum", path), " ")
				return sum
			}
			home := strings.TrimSpace(y.Must("exec", name, "--", "sh", "-c", "echo $HOME"))
			for _, size := range []int{0, 18 << 10, 97 << 10, 5 << 20} {
				data, path := noise(size), fmt.Sprintf("%s/f%d", home, size)
				w, err := b.Files().WriteFile(t.Context(), path, data, 0)
				if err != nil || w.Size != int64(size) || w.SHA256 != hash(data) || inside(path) != w.SHA256 {
					t.Errorf("%s, %d bytes by the client: %+v, %v", level, size, w, err)
				}
				req, _ := http.NewRequestWithContext(t.Context(), "PUT", "http://bailey/v1/sandboxes/"+name+"/files?path="+path+"-api", bytes.NewReader(data))
				resp, err := web(y).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				w = api.Written{}
				if err := json.Unmarshal(body, &w); err != nil || w.Size != int64(size) || inside(path+"-api") != hash(data) || w.SHA256 != hash(data) {
					t.Errorf("%s, %d bytes by the API: %s", level, size, body)
				}
				y.Write("file", string(data), 0o644)
				y.Must("cp", y.Work+"/file", name+":"+path+"-cp")
				in := y.Bailey("files", "write", name, path+"-in")
				in.Stdin = bytes.NewReader(data)
				if r := y.Finish(in); r.Code != 0 || inside(path+"-cp") != hash(data) || inside(path+"-in") != hash(data) {
					t.Errorf("%s, %d bytes by the command line: %v", level, size, r)
				}
			}
		}
		const large = 48 << 20
		before, data := peak(t, d), noise(large)
		b := d.Client.Sandbox(levels[1].String())
		w, err := b.Files().Write(t.Context(), "/root/large", bytes.NewReader(data), 0)
		if err != nil || w.Size != large || w.SHA256 != hash(data) {
			t.Errorf("%+v, %v", w, err)
		}
		got, err := b.Files().ReadFile(t.Context(), "/root/large")
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes are read, %v", len(got), err)
		}
		if grown := peak(t, d) - before; grown > large/2 {
			t.Errorf("the daemon's memory has grown by %d MB for a file of %d MB", grown>>20, large>>20)
		}
	})
}

// peak is the most memory that the daemon has used, in bytes.
func peak(t *testing.T, d *rig.Daemon) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Find("baileyd", "serve")))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kb int64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// TestIgnoredFilesAreCopied is T35: .gitignore is heeded when that is asked for, and
// what is left out is told then.
func TestIgnoredFilesAreCopied(t *testing.T) {
	testneeds.Tool(t, "git")
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		y.Must("create", "--name", "box")
		y.Write("p/.gitignore", "bin/\n*.log\n", 0o644)
		y.Write("p/bin/x", "program", 0o755)
		y.Write("p/a.log", "log", 0o644)
		y.Write("p/src/main.c", "source", 0o644)
		if r := y.Finish(y.Native("git", "-C", y.Work+"/p", "init", "-q")); r.Code != 0 {
			t.Fatal(r)
		}
		list := func(dir string) string {
			return strings.TrimSpace(y.Must("exec", "box", "--", "sh", "-c", "cd "+dir+" && find . -type f -not -path './.git/*' | sort | tr '\\n' ' '"))
		}
		y.Must("cp", y.Work+"/p", "box:/root/all")
		if got := list("/root/all"); got != "./.gitignore ./a.log ./bin/x ./src/main.c" {
			t.Errorf("copied: %s", got)
		}
		var told struct{ Skipped []string }
		out := y.Must("cp", "--json", "--respect-gitignore", y.Work+"/p", "box:/root/some")
		if err := json.Unmarshal([]byte(out), &told); err != nil || len(told.Skipped) != 2 || !strings.Contains(out, "a.log") || !strings.Contains(out, "bin") {
			t.Errorf("it says %s (%v)", out, err)
		}
		if got := list("/root/some"); got != "./.gitignore ./src/main.c" {
			t.Errorf("copied: %s", got)
		}
	})
}

// TestUploadsAreBounded is T37: what is larger than the daemon takes is refused with
// the limit and what to do, and nothing of it is there.
func TestUploadsAreBounded(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			y.Write("config.yaml", "max_upload: 100000\n", 0o600)
			d := y.Serve("--config", filepath.Join(y.Work, "config.yaml"))
			b := makes(t, d, api.SandboxSpec{Name: "box"})
			if _, err := b.Files().WriteFile(t.Context(), "/root/fits", noise(100_000), 0); err != nil {
				t.Error(err)
			}
			_, err := b.Files().WriteFile(t.Context(), "/root/f", noise(100_001), 0)
			if bailey.CodeOf(err) != bailey.CodeTooLarge {
				t.Errorf("by the client: %v", err)
			}
			// Of unknown size it is noticed on the way.
			if _, err = b.Files().Write(t.Context(), "/root/f", bytes.NewReader(noise(1<<20)), 0); bailey.CodeOf(err) != bailey.CodeTooLarge {
				t.Errorf("by the client, streamed: %v", err)
			}
			y.Write("file", string(noise(1<<20)), 0o644)
			says(t, y, bailey.ExitBailey, "100000 bytes", "cp", y.Work+"/file", "box:/root/f")
			req, _ := http.NewRequestWithContext(t.Context(), "PUT", "http://bailey/v1/sandboxes/box/files?path=/root/f", bytes.NewReader(noise(100_001)))
			req.Header.Set("Expect", "100-continue") // else the refusal may come while this is still being sent
			resp, err := web(y).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var p struct {
				Limit int64
				How   string
			}
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || p.Limit != 100_000 || p.How == "" {
				t.Errorf("by the API: %s %+v %v", resp.Status, p, err)
			}
			if _, err := b.Files().Stat(t.Context(), "/root/f"); bailey.CodeOf(err) != bailey.CodeNotFound {
				t.Errorf("what was refused: %v", err)
			}
		})
	}
}
