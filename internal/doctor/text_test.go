package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

func TestText(t *testing.T) {
	p := ordinary(t)
	put(t, p.Root, map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"})
	p.Executable = "/nonexistent/bin/bailey"
	p.Namespaces = fails(os.ErrPermission)
	p.Landlock = func() int { return 0 }
	var b bytes.Buffer
	if err := Check(context.Background(), p).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "ubuntu.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, b.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the text is\n%s\nnot\n%s", b.String(), want)
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if len(line) > textWidth && !strings.HasPrefix(line, "        ") {
			t.Errorf("line %q is wider than %d", line, textWidth)
		}
	}
}

func TestJSON(t *testing.T) {
	r := Check(context.Background(), ordinary(t))
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&back); err != nil {
		t.Fatal(err)
	}
	if back.ExitCode() != 0 || back.Levels[1].Level != bailey.IsolationProcess || back.Result("memory").Status != OK || back.System != "Ubuntu 24.04 LTS" {
		t.Errorf("the document says %+v", back)
	}
}

// TestRedaction puts canaries wherever a report could pick something up.
func TestRedaction(t *testing.T) {
	const home, host = "/home/annika.canary", "canary-box.lan.example"
	secrets := []string{"annika", "canary", "Annika", "192.168.7.31", "fe80::1ff:fe23:4567:890a", "2001:db8::7", "02:42:ac:11:00:02", "02-42-AC-11-00-02",
		"4c4c4544-0042-3510-8051-c7c04f595231", "9f86d081884c7d659a2feaa0c55ad015", "S3CR3TFOLDER", "acme", "a.person@mail.example"}
	all := strings.Join([]string{home + "/x", "user=annika.canary", "at " + host, "canary-box", "Canary-Box", "(annika.canary)", "192.168.7.31:443", "[fe80::1ff:fe23:4567:890a%eth0]", "2001:db8::7",
		"02:42:ac:11:00:02", "02-42-AC-11-00-02", "4c4c4544-0042-3510-8051-c7c04f595231", "9f86d081884c7d659a2feaa0c55ad015", "/srv/acme/S3CR3TFOLDER/b", "a.person@mail.example",
		"open /data/acme/x: permission denied", `"/mnt/acme"`, "annika.canary annika.canary annika.canary"}, " ")
	p := ordinary(t)
	put(t, p.Root, map[string]string{
		"etc/os-release":                  "PRETTY_NAME=\"Linux of " + all + "\"\n",
		"proc/sys/kernel/osrelease":       "6.8.0-annika.canary-canary-box\n",
		"proc/self/attr/apparmor/current": "unconfined", "run/systemd/container": all,
	})
	bad := errors.New(all)
	p.Version = "v1 " + all
	p.User, p.Executable, p.BaileyHome = "annika.canary", home+"/bin/bailey", "/srv/acme/S3CR3TFOLDER"
	put(t, p.Root, map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"})
	for _, tt := range []struct {
		name string
		edit func(*Probes)
		says []string
	}{
		{"all fails", func(p *Probes) {
			p.Namespaces = fails(bad)
			p.Overlay = func(context.Context, string) error { return bad }
			p.Seccomp = func() error { return bad }
			p.KVM = func() (int, error) { return 0, bad }
			p.FileSystem = func(string) (FileSystem, error) { return FileSystem{}, bad }
			p.Cgroups = func() Cgroups {
				return Cgroups{Version: all, Controllers: []Controller{{Name: "memory", Trial: Trial{Value: all, Why: all, Fix: all}}}}
			}
			p.Sandbox = func(context.Context, bailey.Isolation) Trial { return Trial{Why: all, Fix: all} }
		}, []string{"6.8.0-", "apparmor_restrict_unprivileged_userns", "/etc/apparmor.d/bailey"}},
		{"some works", func(p *Probes) {
			put(t, p.Root, map[string]string{"proc/self/attr/apparmor/current": all})
			p.MountProc = fails(bad)
			p.FileSystem = func(string) (FileSystem, error) { return FileSystem{Kind: all, Free: 1}, nil }
			p.Sandbox = func(context.Context, bailey.Isolation) Trial { return Trial{OK: true, Why: all} }
		}, []string{"6.8.0-", "a /proc of its own"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := p
			tt.edit(&q)
			r := Check(context.Background(), q)
			show := func(r Report) string {
				var b bytes.Buffer
				if err := errors.Join(r.WriteText(&b), r.WriteJSON(&b)); err != nil {
					t.Fatal(err)
				}
				return b.String()
			}
			if raw := show(r); !strings.Contains(raw, "annika") || !strings.Contains(raw, "acme") {
				t.Fatal("the canaries are not in the report before it is redacted: this test tests nothing")
			}
			out := show(r.Redacted(Identity{User: "annika.canary", Home: home, Hostname: host, Secrets: []string{q.BaileyHome}}))
			for _, s := range secrets {
				if strings.Contains(out, s) {
					i := strings.Index(out, s)
					t.Errorf("the report tells %q: …%s…", s, out[max(0, i-60):min(len(out), i+60)])
				}
			}
			for _, s := range tt.says {
				if !strings.Contains(out, s) {
					t.Errorf("the report no longer tells %q", s)
				}
			}
		})
	}
	// Names that are not personal stay.
	r := Report{System: "Debian GNU/Linux 12 (bookworm)", Kernel: "5.15.167.4-microsoft-standard-WSL2", Results: []Result{{Value: "root on localhost runs /usr/bin/true"}}}
	out := r.Redacted(Identity{User: "root", Home: "/root", Hostname: "localhost"})
	if out.System != r.System || out.Kernel != r.Kernel || out.Results[0].Value != r.Results[0].Value {
		t.Errorf("redacted to %+v", out)
	}
}

// TestRedactionOfWhatLooksLikeAName: only the name itself is no path.
func TestRedactionOfWhatLooksLikeAName(t *testing.T) {
	d := redactor(Identity{})
	for in, want := range map[string]string{
		"GNU/Linux":         "GNU/Linux",
		"a GNU/Linux, b":    "a GNU/Linux, b",
		"GNU/Linux/secret":  "GNU/PATH",
		"GNU/Linuxsecret":   "GNU/PATH",
		"XGNU/Linux":        "XGNU/PATH",
		"/srv/GNU/Linux":    "/PATH",
		"see GNU/secret/me": "see GNU/PATH",
	} {
		if got := d.text(in); got != want {
			t.Errorf("%q becomes %q, not %q", in, got, want)
		}
	}
}

func FuzzRedaction(f *testing.F) {
	f.Add("open /home/ann/x: ann at box", "ann", "box")
	f.Add("USER HOST user", "user", "host")
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, text, user, host string) {
		d := redactor(Identity{User: user, Home: "/home/" + user, Hostname: host})
		out := d.text(text)
		if user != "" && user != "root" && strings.Contains(out, "/home/"+user+"/") {
			t.Errorf("%q becomes %q", text, out)
		}
	})
}
