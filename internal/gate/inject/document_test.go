package inject

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/policy"
)

// TestPolicyOfTheDocument: the policy that docs/secrets.md shows does what it
// says there.
func TestPolicyOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/secrets.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("the document shows no policy")
	}
	p, err := policy.Parse(block[1])
	if err != nil {
		t.Fatal(err)
	}
	held := secrets.NewHeld()
	held.Put(&secrets.Current{Name: "GITHUB_TOKEN", Value: secrets.NewValue([]byte(githubValue))})
	held.Put(&secrets.Current{Name: "API_KEY", Value: secrets.NewValue([]byte("sk-ant-0123456789"))})
	issuer := NewIssuer(held, mark)
	g, err := issuer.Grant(p.Secrets())
	if err != nil {
		t.Fatal(err)
	}
	k := &kit{t, p, held, issuer, g, g.Placeholders()}
	if env := g.Environment(); len(env) != 1 || env["GITHUB_TOKEN"] != k.ph["github"] {
		t.Errorf("inside is %v", env)
	}
	sent, _, err := k.send(k.raw("GET https://github.com/o/r/info/refs", "Authorization: Basic "+b64("x:"+k.ph["github"]), ""), "github")
	if err != nil || !strings.Contains(sent, b64("x:"+githubValue)) {
		t.Errorf("git: %v: %s", err, sent)
	}
	sent, _, err = k.send(k.raw("POST https://api.anthropic.com/v1/messages", "X-Api-Key: sk-attacker", "{}"), "model")
	if err != nil || !strings.Contains(sent, "X-Api-Key: sk-ant-0123456789\r\n") || strings.Contains(sent, "attacker") {
		t.Errorf("model: %v: %s", err, sent)
	}
}
