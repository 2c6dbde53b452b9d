//go:build linux

package egress

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/internet"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// level is one isolation level as somebody asks for it.
type level struct {
	name  string
	flags []string
}

var levels = []level{{"process", nil}, {"container", []string{"--template", "host"}}}

// ownKernel are the levels at which one person makes the attacks: with a kernel of its
// own the sandbox is the same for everybody, and what is around it is tried at the others.
var ownKernel = []level{{"gvisor", []string{"--isolation", "gvisor", "--template", "host"}}}

// bed is a person's machine in the fake internet.
type bed struct {
	*rig.Yard
	world   *internet.World
	level   level
	seed    string
	secrets []Secret
	flags   []string // of bailey run, beside the level's
	image   string   // a root file system of the person's own, if there is one
}

// newBed makes a workspace with the attack program, keeps the secrets, and writes
// the policy.
func newBed(t *testing.T, w *internet.World, who rig.Person, l level) *bed {
	t.Helper()
	b := &bed{Yard: rig.New(t, who), world: w, level: l, seed: rand.Text()}
	if l.name == "gvisor" {
		b.WithLevels()
	}
	b.secrets = Secrets(b.seed)
	w.Rewind()
	program, err := os.ReadFile(attackProgram(t, inside.Dir))
	if err != nil {
		t.Fatal(err)
	}
	b.Write("attack", string(program), 0o755)
	for _, s := range b.secrets {
		b.keep(t, s.Name(), s.Value)
	}
	b.Write(b.Base+"/policy.yaml", Policy(), 0o644)
	return b
}

// keep puts a secret into the person's store.
func (b *bed) keep(t *testing.T, name, value string) {
	t.Helper()
	cmd := b.Bailey("secret", "set", name)
	cmd.Stdin = strings.NewReader(value + "\n")
	if r := b.Finish(cmd); r.Code != 0 {
		t.Fatalf("bailey secret set %s: %v", name, r)
	}
}

// run is `bailey run` under a policy.
func (b *bed) run(policy string, command ...string) []string {
	args := append(append([]string{"run"}, b.level.flags...), b.flags...)
	return append(append(args, "--discard", "--policy", policy, "--"), command...)
}

// attack runs cases in one sandbox and gives their reports.
func (b *bed) attack(t *testing.T, ids []string) (map[string]*Report, rig.Result) {
	t.Helper()
	r := b.Run(b.run(b.Base+"/policy.yaml", append([]string{b.Work + "/attack", b.seed}, ids...)...)...)
	if r.Code != 0 || strings.Contains(r.Stderr, "the gate has ended") {
		t.Errorf("the attack program ended with %d: %.4000s", r.Code, r.Stderr)
	}
	return reports(t, r.Stdout), r
}

func reports(t *testing.T, out string) map[string]*Report {
	t.Helper()
	m := map[string]*Report{}
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		r := &Report{}
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			t.Errorf("the attack program printed %.200q: %v", lines.Text(), err)
			continue
		}
		m[r.ID] = r
	}
	return m
}

// wanted gives the cases to run.
func wanted() (list []Case) {
	only := os.Getenv(onlyVariable)
	for _, c := range Cases {
		if only == "" || slices.Contains(strings.Split(only, ","), c.ID) {
			list = append(list, c)
		}
	}
	return list
}

// world starts the fake internet, in the process that TestEgress or TestClients has
// started.
func world(t *testing.T, part string) *internet.World {
	t.Helper()
	if inside == nil {
		testneeds.Part(t, part)
	}
	worldOnce.Do(func() {
		if theWorld, worldErr = internet.Start(inside.Sockets, inside.CA); worldErr != nil {
			return
		}
		var l net.Listener
		if l, worldErr = net.Listen("unix", "@"+plan.HostAbstract); worldErr == nil {
			theWorld.Serve(l, "host", 0)
		}
	})
	if worldErr != nil {
		t.Fatal(worldErr)
	}
	return theWorld
}

var (
	worldOnce sync.Once
	theWorld  *internet.World
	worldErr  error
)

// TestStageCases runs all cases of the attack program, at every level, as every
// person.
func TestStageCases(t *testing.T) {
	w := world(t, "TestEgress")
	var all []string
	for _, who := range rig.People() {
		list := levels
		if who == rig.Self() {
			list = append(slices.Clip(levels), ownKernel...)
		}
		for _, l := range list {
			t.Run(who.Name+"/"+l.name, func(t *testing.T) {
				begin := time.Now()
				table := cases(t, newBed(t, w, who, l))
				all = append(all, table...)
				t.Logf("%d cases in %v", len(table), time.Since(begin).Round(time.Millisecond))
			})
		}
	}
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "CASE\tLEVEL\tUSER\tRESULT\tREASONS\tTRIES")
	for _, line := range all {
		fmt.Fprintln(tw, line)
	}
	tw.Flush()
	t.Logf("\n%s", out.String())
}

// cases runs the cases in sandboxes of one bed and gives the lines of the table.
func cases(t *testing.T, b *bed) (table []string) {
	socket, err := net.Listen("unix", filepath.Join(b.Work, plan.HostSocket))
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(filepath.Join(b.Work, plan.HostSocket), 0o777)
	b.world.Serve(socket, "host", 0)
	defer socket.Close()
	bundle := hostBundle(t)
	// Slow cases wait in a sandbox of their own meanwhile.
	var batches [2][]string
	for _, c := range wanted() {
		i := 0
		if c.Slow {
			i = 1
		}
		batches[i] = append(batches[i], c.ID)
	}
	found := map[string]*Report{}
	var printed strings.Builder
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, ids := range batches {
		if len(ids) == 0 {
			continue
		}
		wait.Go(func() {
			list, r := b.attack(t, ids)
			mu.Lock()
			defer mu.Unlock()
			for id, rep := range list {
				found[id] = rep
			}
			printed.WriteString(r.Stdout + r.Stderr)
		})
	}
	wait.Wait()
	if after := hostBundle(t); after != bundle {
		t.Error("the host's bundle of authorities has changed (K4)")
	}
	log, err := ReadLog(filepath.Join(b.Data, "audit"))
	if err != nil {
		t.Error(err)
	}
	denials, windows := Denials(log), Windows(b.world.Record.Events())
	for _, c := range wanted() {
		v := Judge(c, b.seed, found[c.ID], windows[c.ID], b.world.Record, denials[c.ID])
		result := "ok"
		if len(v.Faults) > 0 {
			result = "FAILED"
			t.Errorf("%s (%s):\n\t%s\nnotes:\n\t%s", c.ID, c.Tries, strings.Join(v.Faults, "\n\t"), strings.Join(v.Report.Notes, "\n\t"))
		}
		slices.Sort(v.Reasons)
		table = append(table, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", c.ID, b.level.name, b.Who.Name, result, strings.Join(slices.Compact(v.Reasons), ","), c.Tries))
	}
	b.afterAll(t, found, printed.String())
	return table
}

// hostBundle gives the host's authorities.
func hostBundle(t *testing.T) string {
	t.Helper()
	return rig.Tree(t, "/etc/ssl/certs", "/usr/local/share/ca-certificates")
}

// afterAll looks for values where none may be.
func (b *bed) afterAll(t *testing.T, found map[string]*Report, printed string) {
	t.Helper()
	for _, s := range b.secrets {
		for _, e := range b.world.Record.Sightings(s.Value) {
			if e.Host != s.Host || e.Kind != "request" && e.Kind != "tls" && e.Kind != "websocket" {
				t.Errorf("LEAK: the value of %s arrived at %v", s.Key, e)
			}
		}
		forms := internet.Forms(s.Value)
		forms = append(forms[:1:1], forms[2:]...) // backwards is documented as not covered
		in := func(text []byte) bool {
			return slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Contains(text, f) })
		}
		for id, r := range found {
			for _, text := range r.Received {
				if in([]byte(text)) {
					t.Errorf("LEAK: the value of %s came into the sandbox in %s: %.300q", s.Key, id, text)
				}
			}
		}
		if in([]byte(printed)) {
			t.Errorf("LEAK: the value of %s was printed", s.Key)
		}
		filepath.WalkDir(b.Base, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if text, err := os.ReadFile(p); err == nil && in(text) {
					t.Errorf("LEAK: the value of %s is in %s", s.Key, p)
				}
			}
			return nil
		})
	}
	// No query's value is in the log.
	filepath.WalkDir(filepath.Join(b.Data, "audit"), func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			text, _ := os.ReadFile(p)
			for _, c := range wanted() {
				for _, good := range []bool{true, false} {
					if c.ID != "D1" && c.ID != "D2" && c.ID != "D3" && bytes.Contains(text, []byte(plan.Canary(b.seed, c.ID, good))) {
						t.Errorf("a canary of %s is in the log", c.ID)
					}
				}
			}
			if fi, err := e.Info(); err == nil && fi.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", p, fi.Mode())
			}
		}
		return nil
	})
}

// TestStageControl makes the same attacks on the host, without Bailey: what would
// arrive without a gate, arrives. The placeholders stand for themselves.
func TestStageControl(t *testing.T) {
	w := world(t, "TestEgress")
	b := newBed(t, w, rig.Self(), level{name: "none"})
	var ids []string
	for _, c := range wanted() {
		if c.Alone == "" {
			ids = append(ids, c.ID)
		}
	}
	for _, s := range b.secrets {
		b.Set(s.Env, s.Value)
	}
	b.Set("ATTACK_PATIENCE", "3s") // here nobody answers what only a gate would
	socket, err := net.Listen("unix", filepath.Join(b.Work, plan.HostSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	w.Serve(socket, "host", 0)
	var wait sync.WaitGroup
	var mu sync.Mutex
	const lanes = 6
	found := map[string]*Report{}
	for lane := range lanes {
		var mine []string
		for i, id := range ids {
			if i%lanes == lane {
				mine = append(mine, id)
			}
		}
		if len(mine) == 0 {
			continue
		}
		wait.Go(func() {
			r := b.Finish(b.Native(b.Work+"/attack", append([]string{b.seed}, mine...)...))
			mu.Lock()
			defer mu.Unlock()
			for id, rep := range reports(t, r.Stdout) {
				found[id] = rep
			}
		})
	}
	wait.Wait()
	if testing.Verbose() {
		for id, r := range found {
			for _, twin := range r.Twins {
				if twin.Error != "" {
					t.Logf("%s: twin %q: %s", id, twin.What, twin.Error)
				}
			}
		}
	}
	for _, id := range ids {
		if len(w.Record.Sightings(plan.Canary(b.seed, id, false))) == 0 {
			notes := ""
			if r := found[id]; r != nil {
				notes = strings.Join(r.Notes, "\n\t")
			}
			t.Errorf("%s: without a gate the canary does not arrive, so that the case proves nothing:\n\t%s", id, notes)
		}
	}
}
