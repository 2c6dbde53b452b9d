//go:build linux

package e2b

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

func TestMain(m *testing.M) { rig.Main(m) }

// packages are the generations of the SDK, as scripts/npm has them.
var packages = []string{"e2b", "e2b-2.45"}

// fewest is how many cases there are at least: a script that ends early has not passed.
const fewest = 45

// config is the daemon's: the level is the one that is tested here.
const config = "e2b:\n  level: container\n"

// TestSDK runs the cases with each generation of the SDK.
func TestSDK(t *testing.T) {
	testneeds.Tool(t, "node", "npm", "bash")
	root, err := rig.Source()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range packages {
		dir := filepath.Join(root, "scripts/npm/node_modules", name)
		if _, err := os.Stat(filepath.Join(dir, "package.json")); err != nil {
			t.Skip(testneeds.PrefixTool + name)
		}
	}
	y := rig.New(t, rig.Self())
	y.Write("config.yaml", config, 0o644)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	d := y.Serve("--config", filepath.Join(y.Work, "config.yaml"), "--e2b-listen", address)
	key, err := d.Client.CreateKey(t.Context(), api.KeySpec{Name: "sdk", Scopes: []string{"read", "exec", "write"}})
	if err != nil {
		t.Fatal(err)
	}
	// An ordinary user may have one id only for a sandbox: then other users are refused.
	users := "any"
	if rig.Self().Root() {
		users = "many"
	}
	url := "http://" + address
	y.Env = append(y.Env, "E2B_API_KEY="+key.E2B, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "USERS="+users)
	for _, name := range packages {
		t.Run(name, func(t *testing.T) {
			y.Set("SDK", filepath.Join(root, "scripts/npm/node_modules", name))
			r := y.Finish(y.Native("node", filepath.Join(root, "internal/conformance/e2b/testdata/cases.mjs")))
			n := 0
			for line := range strings.Lines(r.Stdout) {
				var c struct {
					Name, Error string
					MS          int
				}
				if err := json.Unmarshal([]byte(line), &c); err != nil {
					t.Errorf("the cases print %q: %v", line, err)
					continue
				}
				n++
				t.Run(c.Name, func(t *testing.T) {
					if c.Error != "" {
						t.Errorf("after %d ms: %s", c.MS, c.Error)
					}
				})
			}
			if n < fewest || r.Code != 0 {
				t.Errorf("%d cases ran in place of %d at least: %v", n, fewest, r)
			}
		})
	}
}
