package gatebench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/internal/secrets/vault"
)

// gate is a gate's process, as `bailey run` starts one.
type gate struct {
	*child
	client *control.Client
}

// secretName is what the bench's secret is called in the store and inside.
const secretName = "BENCH_KEY"

func (b *bench) startGate() (*gate, error) {
	home := b.path("home")
	if _, err := secrets.Open(home).Set(secretName, secrets.Stdin, []byte(b.secret)); err != nil {
		return nil, err
	}
	ours, theirs, err := control.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	values, feed, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer values.Close()
	cmd := exec.Command(b.self, "gate", "--home", home)
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs, values}
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+b.path(authorityFile))
	c, err := start(b.opt.Dir, cmd)
	if err != nil {
		ours.Close()
		feed.Close()
		return nil, err
	}
	b.children = append(b.children, c)
	// The vault is here, and not a process of its own: it does nothing while the
	// gate is measured.
	v, err := vault.Open(context.Background(), secrets.Open(home), feed)
	if err != nil {
		return nil, err
	}
	v.Watch(secretName)
	g := &gate{child: c}
	if g.client, err = control.NewClient(ours, control.Events{}); err != nil {
		return nil, err
	}
	return g, nil
}

// way is one sandbox's way out.
type way struct {
	authority   []byte // PEM
	placeholder string
}

// open opens a sandbox's way out and hands its listeners over.
func (g *gate) open(ctx context.Context, sandbox string, document []byte, tcp, udp *os.File) (*way, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	opened, err := g.client.Open(ctx, control.Open{
		Sandbox: sandbox, Level: "process", Policy: control.Policy{Document: &control.Document{Name: "the benchmark", Text: document}},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, g.words())
	}
	if err := g.client.Attach(ctx, sandbox, tcp, udp); err != nil {
		return nil, err
	}
	w := &way{authority: opened.Certificate}
	for _, kv := range opened.Env {
		if v, ok := strings.CutPrefix(kv, secretName+"="); ok {
			w.placeholder = v
		}
	}
	return w, nil
}

// policyText is the policy of the bench: those of its hosts that are reached,
// among others of the kinds that policies have.
func (b *bench) policyText() []byte {
	ports := "ports: [" + strconv.Itoa(b.origin.Plain) + ", " + strconv.Itoa(b.origin.TLS) + "], internal: [127.0.0.0/8]"
	return []byte(`version: 1
egress:
  rules:
    - {name: no-admin, action: deny, hosts: [` + apiHost + `], paths: ["/admin/**"]}
    - {name: packages, hosts: ["*.packages.bench.test"], methods: [GET, HEAD]}
    - {name: repository, hosts: [git.bench.test], methods: [GET, POST], paths: ["/acme/*.git/**"]}
    - {name: hooks, hosts: [hooks.bench.test], methods: [POST], when: "req.body_size < 10000"}
    - {name: database, hosts: [db.bench.test], protocol: tcp, ports: [5432]}
    - {name: api, hosts: [` + apiHost + `], methods: [GET], paths: ["/v1/**"], ` + ports + `}
    - {name: model, hosts: [` + modelHost + `], methods: [GET, POST], paths: ["/v1/**"], secret: key, ` + ports + `}
    - {name: files, hosts: [` + filesHost + `], tls: splice, protocol: https, ` + ports + `}
    - {name: search, action: ask, hosts: ["**.search.bench.test"]}
secrets:
  key: {secret: ` + secretName + `, env: ` + secretName + `}
`)
}
