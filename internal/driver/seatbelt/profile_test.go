package seatbelt

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

var update = flag.Bool("update", false, "write the golden files anew")

var profiles = map[string]Profile{
	"minimal": {},
	"project": {
		Read:  []string{"/usr", "/bin", "/sbin", "/etc/ssl", "/opt/homebrew", "/Users/ada/go"},
		Write: []string{"/Users/ada/.bailey/run/1/copy", "/Users/ada/.bailey/run/1/home", "/private/tmp/bailey-1"},
		TTY:   "/dev/ttys004",
	},
	"writable": {
		Read:    []string{"/usr", "/bin"},
		Write:   []string{"/Users/ada/work"},
		Protect: []string{"/Users/ada/work/.git/hooks", "/Users/ada/work/.git/config", "/Users/ada/work/.envrc"},
		Deny:    []string{"/Users/ada/work/secrets", "/usr/local/private"},
	},
	"odd names": {
		Read:    []string{`/Users/ada/a "quoted" \ name`, "/Users/ada/größe", "/Users/ada/(x) [y] {z} ^$.+*?|"},
		Write:   []string{`/Users/ada/w "x" (y)`},
		Protect: []string{`/Users/ada/w "x" (y)/größe`, `/Users/ada/w "x" (y)/a.b+c`},
	},
}

func TestGolden(t *testing.T) {
	for name, p := range profiles {
		t.Run(name, func(t *testing.T) {
			got, err := p.Text()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".sb")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; after a look at the difference, run the test with -update", file)
			}
			for _, list := range [][]string{p.Read, p.Write, p.Protect, p.Deny} {
				slices.Reverse(list)
			}
			if again, _ := p.Text(); again != got {
				t.Error("the order of the paths matters")
			}
		})
	}
}

func TestMeaning(t *testing.T) {
	const copied = "/Users/ada/.bailey/run/1/copy"
	for _, c := range []struct {
		profile, operation, subject string
		want                        bool
	}{
		{"minimal", "file-read-data", "/usr/lib/dyld", true},
		{"minimal", "file-read-data", "/etc/passwd", false},
		{"minimal", "file-read-data", "/Users/ada/.ssh/id_ed25519", false},
		{"minimal", "file-write-data", "/dev/null", true},
		{"minimal", "file-read-data", "/dev/disk0", false},
		{"minimal", "network-outbound", "1.1.1.1:443", false},
		{"minimal", "network-bind", "*:80", false},
		{"minimal", "network-outbound", "/private/var/run/mDNSResponder", false},
		{"minimal", "mach-lookup", "com.apple.system.opendirectoryd.libinfo", true},
		{"minimal", "mach-lookup", "com.apple.SecurityServer", false},
		{"minimal", "mach-lookup", "com.apple.coreservices.launchservicesd", false},
		{"minimal", "mach-lookup", "com.apple.pasteboard.1", false},
		{"minimal", "sysctl-read", "hw.ncpu", true},
		{"minimal", "sysctl-read", "kern.procargs2", false},
		{"minimal", "sysctl-write", "kern.hostname", false},
		{"minimal", "signal", "same-sandbox", true},
		{"minimal", "signal", "others", false},
		{"minimal", "process-info-pidinfo", "others", false},
		{"minimal", "iokit-open", "IOSurfaceRootUserClient", false},
		{"minimal", "appleevent-send", "com.apple.Terminal", false},
		{"minimal", "file-write-data", "/dev/ttys001", false},
		{"minimal", "ipc-posix-sem", "/mp-abcdef", true},
		{"minimal", "ipc-posix-sem", "/other", false},
		{"minimal", "ipc-posix-shm-write-create", "x", false},
		{"minimal", "file-link", "/dev/null", false},
		{"minimal", "process-exec", "/bin/sh", false},

		{"project", "process-exec", "/bin/sh", true},
		{"project", "file-read-data", "/private/etc/ssl/cert.pem", true},
		{"project", "file-read-data", "/private/etc/sudoers", false},
		{"project", "file-write-create", "/usr/local/x", false},
		{"project", "file-read-data", "/usrx/y", false},
		{"project", "file-read-metadata", "/Users/ada", true},
		{"project", "file-read-data", "/Users/ada", false},
		{"project", "file-read-metadata", "/Users/ada/Documents", false},
		{"project", "file-read-data", copied + "/main.go", true},
		{"project", "file-write-create", copied + "/new", true},
		{"project", "file-write-unlink", copied + "/old", true},
		{"project", "file-write-unlink", copied, false},
		{"project", "file-write-setugid", copied + "/x", false},
		{"project", "file-link", copied + "/x", false},
		{"project", "file-write-create", "/Users/ada/work/x", false},
		{"project", "file-write-data", "/dev/ttys004", true},
		{"project", "file-write-data", "/dev/ttys005", false},

		{"writable", "file-write-create", "/Users/ada/work/main.go", true},
		{"writable", "file-write-create", "/Users/ada/work/.github", true},
		{"writable", "file-read-data", "/Users/ada/work/.git/config", true},
		{"writable", "file-write-data", "/Users/ada/work/.git/config", false},
		{"writable", "file-write-data", "/Users/ada/work/.GIT/Config", false},
		{"writable", "file-write-create", "/Users/ada/work/.git/conﬁg", false}, // macOS folds these to ASCII
		{"writable", "file-write-create", "/Users/ada/wor\u212a/.git/hoo\u212a\u017f/x", false},
		{"writable", "file-write-data", "/Users/ada/work/.git/config.lock", true},
		{"writable", "file-write-unlink", "/Users/ada/work/.git/config", false},
		{"writable", "file-write-create", "/Users/ada/work/.git/hooks/pre-commit", false},
		{"writable", "file-write-create", "/Users/ada/work/.git/index.lock", true},
		{"writable", "file-write-unlink", "/Users/ada/work/.git", false}, // moved away
		{"writable", "file-write-create", "/Users/ada/work/.Git", false}, // another moved there
		{"writable", "file-write-unlink", "/Users/ada/work", false},
		{"writable", "file-write-create", "/Users/ada/work/.envrc", false},
		{"writable", "file-write-create", "/Users/ada/work/sub/.envrc", true},
		{"writable", "file-read-data", "/Users/ada/work/secrets/key", false},
		{"writable", "file-read-metadata", "/Users/ada/work/Secrets", false},
		{"writable", "file-write-create", "/Users/ada/work/secrets", false},
		{"writable", "file-read-data", "/Users/ada/work/secrets.md", true},
		{"writable", "process-exec", "/usr/local/private/tool", false},
		{"writable", "process-exec", "/usr/local/bin/tool", true},

		{"odd names", "file-read-data", `/Users/ada/a "quoted" \ name/f`, true},
		{"odd names", "file-read-data", "/Users/ada/größe/f", true},
		{"odd names", "file-read-data", "/Users/ada/(x) [y] {z} ^$.+*?|", true},
		{"odd names", "file-read-data", "/Users/ada/(x) [y] {z} ^$a", false},
		{"odd names", "file-write-data", `/Users/ada/w "x" (y)/größe`, false},
		{"odd names", "file-write-data", `/Users/ada/w "x" (y)/GRÖSSE/x`, false}, // wider than needed
		{"odd names", "file-write-data", "/Users/ada/w \"x\" (y)/gro\u0308ße", false},
		{"odd names", "file-write-data", `/Users/ada/w "x" (y)/a.b+c`, false},
		{"odd names", "file-write-data", `/Users/ada/w "x" (y)/axb+c`, true},
	} {
		text, err := profiles[c.profile].Text()
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decide(nodes, c.operation, c.subject)
		if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("%s: %s %s is %v, want %v", c.profile, c.operation, c.subject, got, c.want)
		}
	}
}

// A terminal that the command opened itself carries an extension; without it
// the device is somebody else's.
func TestOwnTerminals(t *testing.T) {
	text, _ := Profile{}.Text()
	nodes, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := decide(nodes, "file-write-data", "/dev/ttys009", "com.apple.sandbox.pty"); !ok || err != nil {
		t.Errorf("its own terminal is closed: %v", err)
	}
}

// Each guard is needed: without it the attack that it is there for succeeds.
func TestGuards(t *testing.T) {
	p := profiles["writable"]
	p.Protect, p.Deny = nil, nil
	text, err := p.Text()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{"file-write-data", "/Users/ada/work/.git/config"},
		{"file-write-unlink", "/Users/ada/work/.git"},
		{"file-write-create", "/Users/ada/work/.git"},
		{"file-read-data", "/Users/ada/work/secrets/key"},
		{"process-exec", "/usr/local/private/tool"},
	} {
		if ok, err := decide(nodes, c[0], c[1]); !ok || err != nil {
			t.Errorf("%s %s is denied by something else (%v)", c[0], c[1], err)
		}
	}
}

func TestLongPaths(t *testing.T) {
	long := "/Users/ada/work/" + strings.Repeat("näme/", 170) + "end"
	if _, err := (Profile{Read: []string{long}}).Text(); bailey.CodeOf(err) != bailey.CodeWorkspaceRefused {
		t.Errorf("an allowance that cannot be written gives %v", err)
	}
	plain := "/Users/ada/work/" + strings.Repeat("name/", 170) + "end"
	text, err := Profile{Write: []string{"/Users/ada/work"}, Protect: []string{plain, long}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{plain, long, plain + "/below"} {
		if ok, err := decide(nodes, "file-write-data", path); ok || err != nil {
			t.Errorf("a long protected path may be written (%v)", err)
		}
	}
	if ok, err := decide(nodes, "file-write-create", "/Users/ada/work/other"); !ok || err != nil {
		t.Errorf("protecting a long path protects everything (%v)", err)
	}
}

func TestRefusedPaths(t *testing.T) {
	for _, bad := range []string{"", "relative", "/a/../b", "/a/", "/a\nb", "/a\x00b", "/a\xffb"} {
		for _, p := range []Profile{{Read: []string{bad}}, {Write: []string{bad}}, {Protect: []string{bad}}, {Deny: []string{bad}}, {TTY: bad}} {
			if bad == "" && p.TTY == "" && p.Read == nil && p.Write == nil && p.Protect == nil && p.Deny == nil {
				continue // no terminal
			}
			if _, err := p.Text(); err == nil {
				t.Errorf("%+q is accepted in %+v", bad, p)
			}
		}
	}
}

func FuzzProfile(f *testing.F) {
	f.Add("/Users/ada/work", "/Users/ada/work/.git")
	f.Add(`/a"b\c`, `/a"b\c/(*)"`)
	f.Fuzz(func(t *testing.T, write, protect string) {
		text, err := Profile{Write: []string{write}, Protect: []string{protect}}.Text()
		if err != nil {
			return
		}
		nodes, err := parse(text)
		if err != nil {
			t.Fatalf("%q, %q: %v", write, protect, err)
		}
		var r rules
		inside := r.paths([]string{protect})[0]
		for _, operation := range []string{"file-write-data", "file-write-create", "file-write-unlink"} {
			for _, p := range []string{inside, inside + "/x"} {
				if ok, err := decide(nodes, operation, p); err != nil || ok && p != "//x" {
					t.Fatalf("%s of %q is allowed (%v)", operation, p, err)
				}
			}
		}
		if ok, err := decide(nodes, "file-read-data", "/private/etc/sudoers"); err != nil || ok && !within("/private/etc/sudoers", r.paths([]string{write})[0]) {
			t.Fatalf("writing %q opens other files (%v)", write, err)
		}
	})
}
