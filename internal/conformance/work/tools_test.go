//go:build linux

package work

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// TestTools runs the same script on the host and inside, in workspaces that are
// equal, and compares what it prints. Then the change set is applied, and what
// the tool has made works on the host.
func TestTools(t *testing.T) {
	cases := []struct {
		name, script string
		tools        []string
		after        string // run on the host when the changes have been applied
	}{
		{"make", "make -j2 2>&1 | sort; ./program; make -q", []string{"make", "gcc"}, "./program"},
		{"python", "python3 -m venv --without-pip env; . env/bin/activate; python -c 'import sys, os; print(os.path.relpath(sys.prefix))'", []string{"python3"}, "env/bin/python -c 'print(1)'"},
		{"node", `node -e 'const fs = require("fs"); fs.writeFileSync("out.json", JSON.stringify({a: [1, 2]})); console.log(fs.readdirSync(".").length, new Set([1, 1]).size)'`, []string{"node"}, "cat out.json"},
		{"npm", "npm run --silent build; cat built.txt; npm pack --silent", []string{"node", "npm"}, "cat built.txt"},
		{"git", `git status --porcelain; git log --format=%s; echo more >>file; git add -A; git commit -qm second; git status --porcelain; git log --format=%s; git checkout -q -b side; git gc -q; git fsck`, []string{"git"}, "git fsck && git log --format=%s side && git status --porcelain"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			testneeds.Tool(t, c.tools...)
			each(t, func(t *testing.T, y *rig.Yard, l level) {
				furnish(t, y)
				run := script(y, "run.sh", c.script+"\n")
				want := native(t, y, "sh", "-c", "cp -a . ../control && cd ../control && sh run.sh")
				host := y.Host()
				out := y.Run(l.run([]string{"--keep"}, "sh", run)...)
				if out.Code != 0 {
					t.Fatal(out)
				}
				if out.Stdout != want {
					t.Errorf("inside:\n%s\non the host:\n%s\nstderr:\n%s", out.Stdout, want, out.Stderr)
				}
				rig.Same(t, "the host before apply", host, y.Host())
				y.Must("apply", "latest")
				control := native(t, y, "sh", "-c", "cd ../control && "+c.after)
				if got := native(t, y, "sh", "-c", c.after); got != control {
					t.Errorf("on the host afterwards:\n%s\nwant:\n%s", got, control)
				}
			})
		})
	}
}

// furnish fills a workspace with a repository, a C project and a package.
func furnish(t *testing.T, y *rig.Yard) {
	t.Helper()
	y.Write("Makefile", "CFLAGS = -O1\nOBJS = main.o a.o b.o c.o\nprogram: $(OBJS)\n\t$(CC) -o $@ $(OBJS)\n%.o: %.c all.h\n\t$(CC) $(CFLAGS) -c -o $@ $<\n", 0o644)
	y.Write("all.h", "int a(void), b(void), c(void);\n", 0o644)
	for _, f := range []string{"a", "b", "c"} {
		y.Write(f+".c", fmt.Sprintf("#include \"all.h\"\nint %s(void) { return '%[1]s'; }\n", f), 0o644)
	}
	y.Write("main.c", "#include <stdio.h>\n#include \"all.h\"\nint main(void) { printf(\"%c%c%c\\n\", a(), b(), c()); return 0; }\n", 0o644)
	y.Write("package.json", `{"name": "tiny", "version": "1.0.0", "scripts": {"build": "node build.js"}}`+"\n", 0o644)
	y.Write("build.js", `require("fs").writeFileSync("built.txt", process.env.npm_package_name + "\n")`+"\n", 0o644)
	y.Write("file", "text\n", 0o644)
	y.Write(filepath.Join(y.Home, ".gitconfig"), "[user]\n\tname = A Person\n\temail = person@example.test\n", 0o644)
	if _, err := exec.LookPath("git"); err == nil {
		native(t, y, "git", "init", "-q", "-b", "main")
		native(t, y, "git", "config", "user.name", "A Person")
		native(t, y, "git", "config", "user.email", "person@example.test")
		native(t, y, "git", "add", "-A")
		native(t, y, "git", "commit", "-q", "-m", "first")
	}
}

// TestVenvWithPip makes a virtual environment as the documentation says.
func TestVenvWithPip(t *testing.T) {
	testneeds.Tool(t, "python3")
	for _, l := range levels {
		t.Run(l.name, func(t *testing.T) {
			y := rig.New(t, rig.Self())
			r := y.Run(l.run([]string{"--discard"}, "sh", "-c", "python3 -m venv env && env/bin/python -m pip --version")...)
			if r.Code != 0 || !strings.Contains(r.Stdout, "pip ") {
				t.Fatal(r)
			}
		})
	}
}

// TestGo builds the program bailey and tests one of its packages, without network:
// the module cache of the person is there.
func TestGo(t *testing.T) {
	modules, cache, sdk := golang(t, "GOMODCACHE"), golang(t, "GOCACHE"), golang(t, "GOROOT")
	if err := os.MkdirAll(cache, 0o700); err != nil { // somebody may not have built anything yet
		t.Fatal(err)
	}
	source, err := rig.Source()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range levels {
		t.Run(l.name, func(t *testing.T) {
			y := rig.New(t, rig.Self())
			copySource(t, source, y.Work)
			y.Set("PATH", filepath.Join(sdk, "bin")+":/usr/local/bin:/usr/bin:/bin")
			y.Set("HOME", os.Getenv("HOME"))
			y.Set("GOMODCACHE", modules)
			y.Set("GOCACHE", cache)
			y.Set("CGO_ENABLED", "0")
			y.Set("GOFLAGS", "-buildvcs=false")
			flags := []string{"--keep", "--mount", cache + ":rw", "--env", "GOCACHE", "--env", "CGO_ENABLED", "--env", "GOFLAGS"}
			if l.name == "container" {
				flags = append(flags, "--mount", sdk, "--mount", modules, "--env", "PATH", "--env", "GOMODCACHE")
			}
			host := rig.Tree(t, y.Work)
			r := y.Run(l.run(flags, "sh", "-c", "go build -o program ./cmd/bailey && ./program version && go test -count=1 ./internal/project")...)
			if r.Code != 0 || !strings.Contains(r.Stdout, "\nok ") {
				t.Fatal(r)
			}
			rig.Same(t, "the host", host, rig.Tree(t, y.Work))
			if list := y.Must("changes", "--summary"); !strings.Contains(list, "program") {
				t.Errorf("the program that was built is not in the change set: %s", list)
			}
		})
	}
}

// copySource copies the repository's source, without what is built from it.
func copySource(t *testing.T, from, to string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `tar -cf - --exclude=./.git --exclude=./.cache --exclude=./bin --exclude=node_modules . | tar -C "$0" -xf -`, to)
	cmd.Dir = from
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
