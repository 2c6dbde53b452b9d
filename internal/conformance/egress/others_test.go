//go:build linux

package egress

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/internet"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// TestStageDocuments gives Bailey policies, hosts and secrets that are none: each
// is refused before a sandbox is made (N3, A1, A2, A3, S17, T59).
func TestStageDocuments(t *testing.T) {
	b := newBed(t, world(t, "TestEgress"), rig.Self(), levels[0])
	refused := func(what string, r rig.Result) {
		t.Helper()
		if r.Code != 125 || r.Stdout != "" {
			t.Errorf("%s: %v", what, r)
		}
	}
	for _, host := range []string{"*", "*.com", "*.co.uk", "", "**", "**.test", "ok.test/x", "10.0.0.1/8", "a..test", "ok.test:0", "ok.test:99999"} {
		refused("--allow "+host, b.Run("run", "--discard", "--allow", host, "--", "echo", "started"))
	}
	rule := func(s string) string { return "version: 1\negress:\n  rules:\n  - " + s + "\n" }
	for i, text := range []string{
		"version: 1\negress:\n  allows: []\n", "version: 1\nEgress: {}\n", "version: 1\negress:\n  Rules: []\n", "egress: {rules: []}\n", "version: 2\negress: {rules: []}\n",
		rule(`{Hosts: [ok.test]}`), rule(`{hosts: ["*"]}`), rule(`{hosts: [""]}`), rule(`{hosts: [ok.test], method: [GET]}`), rule(`{hosts: [ok.test], action: maybe}`),
		rule(`{addresses: ["10.0.0.0/"]}`), rule(`{addresses: ["10.0.0.0/33"]}`), rule(`{addresses: ["10.0.0.1/8"]}`), rule(`{addresses: ["fe80::1%eth0/64"]}`), rule(`{addresses: [169.254.169.254]}`),
		rule(`{hosts: [ok.test], tls: splice, paths: [/x]}`), rule(`{hosts: [ok.test], secret: absent}`), "version: 1\negress_ip: 5.10.0.1\n", "version: 1\negress: {egress_ip: 5.10.0.1, rules: []}\n",
		"version: 1\negress: {rules: [{hosts: [ok.test]}, {hosts: [ok.test]}]\n", "version: 1\nmode: Audit\n",
	} {
		file := filepath.Join(b.Base, fmt.Sprintf("bad-%d.yaml", i))
		b.Write(file, text, 0o644)
		refused(text, b.Run(b.run(file, "echo", "started")...))
	}
	for _, value := range []string{"short", "twelve characters\nand a line", "twelve characters\rand more", "twelve characters\x00and more"} {
		cmd := b.Bailey("secret", "set", "BAD")
		cmd.Stdin = strings.NewReader(value)
		refused("secret set "+strconv.Quote(value), b.Finish(cmd))
	}
	// The twins: the same with nothing wrong, of which those without rules deny all.
	for i, text := range []string{"version: 1\n", "version: 1\negress: {}\n", "version: 1\negress: {rules: []}\n", rule(`{hosts: []}`)} {
		file := filepath.Join(b.Base, fmt.Sprintf("empty-%d.yaml", i))
		b.Write(file, text, 0o644)
		b.nothing(t, b.run(file, b.Work+"/attack", b.seed, "T50"), text)
	}
}

// nothing runs case T50: it must run, and nothing may come out of it.
func (b *bed) nothing(t *testing.T, args []string, what string) {
	t.Helper()
	before := len(b.world.Record.Events())
	r := b.Run(args...)
	if r.Code != 0 || len(reports(t, r.Stdout)) != 1 {
		t.Errorf("%s: %v", what, r)
	}
	for _, e := range b.world.Record.Events()[before:] {
		t.Errorf("%s: LEAK: %v", what, e)
	}
}

// TestStageNothingAllowed runs without any network at both levels (T50), and with
// an empty policy (A1).
func TestStageNothingAllowed(t *testing.T) {
	for _, who := range rig.People() {
		for _, l := range levels {
			b := newBed(t, world(t, "TestEgress"), who, l)
			args := append([]string{"run"}, l.flags...)
			b.nothing(t, append(args, "--discard", "--", b.Work+"/attack", b.seed, "T50"), who.Name+"/"+l.name)
		}
	}
}

// TestStageManyRules runs under 2,000 rules more, before and behind those that
// the cases use (T57).
func TestStageManyRules(t *testing.T) {
	w := world(t, "TestEgress")
	b := newBed(t, w, rig.Self(), levels[0])
	head, rest, _ := strings.Cut(Policy(), "  rules:\n")
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, "  - {name: many-%d, hosts: [h%[1]d.many.test], ports: [\"22\", \"5432\", \"8443\", \"443\"], methods: [GET], paths: [\"/p%[1]d/**\"]}\n", i)
	}
	b.Write(b.Base+"/policy.yaml", head+"  rules:\n"+many.String()+rest, 0o644)
	b.judge(t, []Case{{ID: "N1"}, {ID: "P3"}, {ID: "P4"}, {ID: "S1"}, {ID: "H6"}})
}

// judge runs cases in one sandbox, with further flags and variables.
func (b *bed) judge(t *testing.T, list []Case) {
	t.Helper()
	var ids []string
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	found, r := b.attack(t, ids)
	log, err := ReadLog(filepath.Join(b.Data, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	denials, windows := Denials(log), Windows(b.world.Record.Events())
	for _, c := range list {
		v := Judge(c, b.seed, found[c.ID], windows[c.ID], b.world.Record, denials[c.ID])
		if len(v.Faults) > 0 {
			t.Errorf("%s:\n\t%s\n\t%s", c.ID, strings.Join(v.Faults, "\n\t"), strings.Join(v.Report.Notes, "\n\t"))
		}
	}
	b.afterAll(t, found, r.Stdout+r.Stderr)
}

// TestStageTwoSandboxes gives one sandbox what is another's (A9, A13, K2, S11).
func TestStageTwoSandboxes(t *testing.T) {
	w := world(t, "TestEgress")
	for _, l := range levels {
		t.Run(l.name, func(t *testing.T) {
			b := newBed(t, w, rig.Self(), l)
			first := b.Run(b.run(b.Base+"/policy.yaml", "sh", "-c", `echo "$PROVIDER_KEY"; cat "$NODE_EXTRA_CA_CERTS"`)...)
			key, certificates, _ := strings.Cut(first.Stdout, "\n")
			if first.Code != 0 || len(key) < 20 || certificates == "" {
				t.Fatal(first)
			}
			b.Write("foreign.pem", certificates, 0o644)
			b.flags = []string{"--env", "FOREIGN_KEY=" + key, "--env", "FOREIGN_CA=" + b.Work + "/foreign.pem"}
			b.judge(t, []Case{{ID: "A9"}, {ID: "K2"}})
		})
	}
}

// TestStageGateDies kills the gate's process while requests go through it (A7):
// nothing gets out from then on, the log verifies, and the next run works.
func TestStageGateDies(t *testing.T) {
	w := world(t, "TestEgress")
	for _, who := range rig.People() {
		for _, l := range levels {
			t.Run(who.Name+"/"+l.name, func(t *testing.T) {
				b := newBed(t, w, who, l)
				cmd := b.Bailey(b.run(b.Base+"/policy.yaml", b.Work+"/attack", b.seed, "A7")...)
				var out, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				before := len(w.Record.Events())
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				alive := 0
				for deadline := time.Now().Add(rig.Patience); alive < 5 && time.Now().Before(deadline); {
					changed := w.Record.Changed()
					alive = 0
					for _, e := range w.Record.Events()[before:] {
						if e.Kind == "request" && e.URI == "/alive" {
							alive++
						}
					}
					if alive < 5 {
						select {
						case <-changed:
						case <-time.After(time.Second):
						}
					}
				}
				killed := 0
				for _, pid := range rig.Descendants() {
					if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(line, []byte("baileyd\x00gate\x00")) {
						syscall.Kill(pid, syscall.SIGKILL)
						killed++
					}
				}
				cmd.Wait()
				if alive < 5 || killed != 1 {
					t.Errorf("%d requests came, then %d gates were killed: %s", alive, killed, errs.String())
				}
				if got := w.Record.Sightings(plan.Canary(b.seed, "A7", false)); len(got) > 0 {
					t.Errorf("LEAK: after the gate's death: %v", got)
				}
				for _, e := range w.Record.Events()[before:] {
					if why := Forbidden(e); why != "" {
						t.Errorf("LEAK: %s: %v", why, e)
					}
				}
				if len(w.Record.Sightings(plan.Canary(b.seed, "A7", true))) == 0 {
					t.Error("nothing came before the gate's death")
				}
				if !strings.Contains(errs.String(), "the gate has ended") {
					t.Errorf("nobody was told: %s", errs.String())
				}
				if r := b.Run("audit", "verify"); r.Code != 0 {
					t.Errorf("the log does not verify: %v", r)
				}
				b.judge(t, []Case{{ID: "N10"}})
			})
		}
	}
}

// TestStageLivePolicy takes rules out of the policy's file while what they allowed
// is under way (A5): nothing more gets out by it a second later.
func TestStageLivePolicy(t *testing.T) {
	w := world(t, "TestEgress")
	for _, l := range levels {
		t.Run(l.name, func(t *testing.T) {
			b := newBed(t, w, rig.Self(), l)
			before := len(w.Record.Events())
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for {
					changed := w.Record.Changed()
					for _, e := range w.Record.Events()[before:] {
						if e.Kind == "request" && e.URI == "/ready/A5" {
							var kept []string
							for line := range strings.Lines(Policy()) {
								if !strings.Contains(line, "{name: ok,") && !strings.Contains(line, "{name: splice,") && !strings.Contains(line, "{name: mail,") {
									kept = append(kept, line)
								}
							}
							b.Write(b.Base+"/policy.yaml", strings.Join(kept, ""), 0o644)
							return
						}
					}
					select {
					case <-changed:
					case <-stop:
						return
					}
				}
			}()
			b.judge(t, []Case{{ID: "A5"}})
			close(stop)
			<-done
		})
	}
}

// TestStageNoLog runs where the audit log cannot be written (A8): there is no
// sandbox then.
func TestStageNoLog(t *testing.T) {
	b := newBed(t, world(t, "TestEgress"), rig.Self(), levels[0])
	if err := os.RemoveAll(filepath.Join(b.Data, "audit")); err != nil {
		t.Fatal(err)
	}
	b.Write(filepath.Join(b.Data, "audit"), "no folder", 0o644)
	if r := b.Run(b.run(b.Base+"/policy.yaml", "echo", "started")...); r.Code != 125 || strings.Contains(r.Stdout, "started") {
		t.Error(r)
	}
	if err := os.Remove(filepath.Join(b.Data, "audit")); err != nil {
		t.Fatal(err)
	}
	if r := b.Run(b.run(b.Base+"/policy.yaml", "echo", "started")...); r.Code != 0 {
		t.Error(r)
	}
}

// TestDenials checks how a log is split: what one case is charged with.
func TestDenials(t *testing.T) {
	rec := func(kind, host, path, decision string) *audit.Record {
		return &audit.Record{Kind: kind, Sandbox: "s", Decision: decision, Reason: "r", Egress: &audit.Egress{Host: host, Path: path}}
	}
	got := Denials([]*audit.Record{
		rec("name", "a", "", "deny"), rec("http", plan.Marker, "/begin/X", "allow"), rec("http", "b", "/", "deny"), rec("http", "c", "/", "allow"),
		rec("http", plan.Marker, "/end/X", "allow"), rec("http", plan.Marker, "/begin/Y", "allow"), rec("stream", "d", "", "deny"),
		{Kind: audit.KindEnd, Sandbox: "s", Outcome: &audit.Outcome{Error: "secret_misdirected"}}, {Kind: audit.KindEnd, Sandbox: "s", Outcome: &audit.Outcome{Error: "canceled"}},
	})
	if len(got["X"]) != 1 || len(got["Y"]) != 2 || len(got[""]) != 1 {
		t.Errorf("%v", got)
	}
}

// TestForms checks that a canary is found in every encoding that is looked for.
func TestForms(t *testing.T) {
	for i, f := range internet.Forms(plan.Canary("seed", "X", false)) {
		if len(f) < 30 {
			t.Errorf("form %d is short enough to be found by chance: %q", i, f)
		}
	}
}

// TestCatalogue checks that every entry of the catalogue is a case, or that it is
// said where else it is tested or why it is not.
func TestCatalogue(t *testing.T) {
	for _, part := range []struct {
		letter   string
		from, to int
	}{
		{"N", 1, 13}, {"T", 1, 12}, {"H", 1, 15}, {"D", 1, 6}, {"I", 1, 5}, {"P", 1, 7}, {"U", 1, 5}, {"S", 1, 22}, {"A", 1, 15}, {"K", 1, 6},
		{"T", 47, 53}, {"T", 55, 55}, {"T", 57, 57}, {"T", 59, 65},
	} {
		for i := part.from; i <= part.to; i++ {
			id := fmt.Sprint(part.letter, i)
			n := 0
			for _, c := range Cases {
				if c.ID == id && c.Tries != "" {
					n++
				}
			}
			if notHere[id] != "" {
				n++
			}
			if n != 1 {
				t.Errorf("%s is there %d times", id, n)
			}
		}
	}
}
