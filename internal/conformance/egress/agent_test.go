//go:build linux

package egress

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/internet"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/mirrors"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// claude is the folder of the coding agent, which scripts/fetch brings.
func claude(t *testing.T) string {
	t.Helper()
	root, err := rig.Source()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "scripts/npm/node_modules/@anthropic-ai/claude-code")
	if _, err := os.Stat(filepath.Join(dir, "cli.js")); err != nil {
		t.Skip(testneeds.PrefixTool + "claude")
	}
	return dir
}

// TestAgent runs a coding agent that people use, Claude Code, against a provider
// of ours: it asks its model, runs the command that the model wants and asks
// again, all with a key that it does not have.
func TestAgent(t *testing.T) {
	testneeds.Tool(t, "ip", "nsenter", "node")
	claude(t)
	outer(t, "^TestStageAgent$")
}

// TestStageAgent is the inner part.
func TestStageAgent(t *testing.T) {
	w := world(t, "TestAgent")
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) { agent(t, w, who) })
	}
}

// looks is what the model has the agent do, as a script, for Claude Code rewrites
// lines with pipes: it leaves a file, and all that can be read of environments,
// command lines and files inside. Nothing of it is printed: a conversation that
// holds a placeholder is refused, see docs/secrets.md.
const looks = `echo by the agent >made.txt
{
	env
	cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\0' '\n'
	find "$HOME" /tmp /etc/bailey . -xdev -type f -size -1024k ! -name saw.txt -exec cat {} +
} >saw.txt 2>/dev/null
exit 0
`

func agent(t *testing.T, w *internet.World, who rig.Person) {
	b := newBed(t, w, who, levels[0])
	key := Secret{Key: "anthropic", Env: "ANTHROPIC_API_KEY", Host: plan.Anthropic, Value: "sk-ant-api03-" + plan.Canary(b.seed, "secret anthropic", true)}
	b.secrets = []Secret{key}
	b.keep(t, key.Env, key.Value)
	const done = "the model says that all is done"
	w.Handle(plan.Anthropic, mirrors.Anthropic(key.Value, "sh look.sh", done))
	b.Write("look.sh", looks, 0o644)
	from, to := claude(t), filepath.Join(b.Base, "claude")
	for _, name := range []string{"cli.js", "package.json"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(filepath.Join(to, name), string(text), 0o644)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	r := b.Finish(b.Bailey("run", "--apply", "--mount", to, "--profile", "model-provider", "--secret", key.Env+"@"+key.Host,
		"--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "--env", "IS_SANDBOX=1",
		"--", node, filepath.Join(to, "cli.js"), "-p", "--dangerously-skip-permissions", "make a file"))
	if r.Code != 0 || !strings.Contains(r.Stdout, done) {
		t.Fatalf("%.4000s", r)
	}
	if made, err := os.ReadFile(filepath.Join(b.Work, "made.txt")); err != nil || string(made) != "by the agent\n" {
		t.Errorf("the agent made %q: %v", made, err)
	}
	// That it looked around shows in what it found instead of the key.
	saw, err := os.ReadFile(filepath.Join(b.Work, "saw.txt"))
	if err != nil || !strings.Contains(string(saw), "\nANTHROPIC_API_KEY=sk-ant-api03-") || !strings.Contains(string(saw), "through a gate") {
		t.Errorf("the agent saw %d bytes, without its placeholder: %v", len(saw), err)
	}
	if !slices.ContainsFunc(w.Record.Sightings(key.Value), func(e internet.Event) bool { return e.Kind == "request" && e.Host == plan.Anthropic }) {
		t.Error("the key did not arrive at the provider")
	}
	b.afterAll(t, nil, r.Stdout+r.Stderr) // the workspace is searched too
}
