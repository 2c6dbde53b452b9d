package gatebench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// bench is one benchmark under way.
type bench struct {
	opt      Options
	self     string // this program
	secret   string
	certs    *certificates
	origin   originBegun
	reverse  originBegun
	gate     *gate
	way      *way
	mitm     *mitmproxy
	nginx    *nginx
	missing  map[string]*result.Missing // by name
	children []*child
	machine  result.Machine
}

// authorityFile has the certificate that clients of the server trust.
const authorityFile = "authority.pem"

func (b *bench) path(name string) string { return filepath.Join(b.opt.Dir, name) }

// measures are all there are, by name.
var measures = []struct {
	name string
	run  func(*bench, context.Context) (Measure, error)
}{
	{"plain", request(work{scheme: "http", host: apiHost, what: "plain HTTP/1.1"})},
	{"terminated-h1", request(work{scheme: "https", host: apiHost, what: "HTTP/1.1 over TLS, terminated"})},
	{"terminated-h2", request(work{scheme: "https", host: apiHost, h2: true, what: "HTTP/2, terminated"})},
	{"secret-h1", request(work{scheme: "https", host: modelHost, what: "HTTP/1.1 over TLS, terminated, with a credential put in"})},
	{"secret-h2", request(work{scheme: "https", host: modelHost, h2: true, what: "HTTP/2, terminated, with a credential put in"})},
	{"download", (*bench).download},
	{"download-spliced", (*bench).downloadSpliced},
	{"rules", (*bench).rules},
	{"memory", (*bench).memory},
}

// Names gives the names of the measures.
func Names() []string {
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	return names
}

// run makes the benchmark, in namespaces of its own.
func run(ctx context.Context, opt Options) (*Report, error) {
	b := &bench{opt: opt, missing: map[string]*result.Missing{}}
	defer func() {
		for _, c := range slices.Backward(b.children) {
			c.stop()
		}
	}()
	if err := b.setUp(ctx); err != nil {
		return nil, failure("prepare the benchmark", err)
	}
	report := &Report{Bailey: opt.Version, Machine: b.machine, Rounds: opt.Rounds}
	for _, m := range measures {
		if len(opt.Only) > 0 && !slices.Contains(opt.Only, m.name) {
			continue
		}
		one, err := m.run(b, ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil, bailey.Errorf(bailey.CodeBusy, "finish the benchmark", "", "%w", context.Cause(ctx))
			}
			return nil, failure("measure "+m.name, err)
		}
		one.Name = m.name
		report.Measures = append(report.Measures, one)
	}
	report.Machine.Load[1] = result.Load()
	return report, nil
}

// failure leaves an error that says what to do as it is.
func failure(what string, err error) error {
	var own *bailey.Error
	if errors.As(err, &own) {
		return own
	}
	return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
}

// alone are the measures that need no servers.
var alone = []string{"rules"}

func (b *bench) setUp(ctx context.Context) (err error) {
	b.machine = result.Describe(b.opt.Dir)
	if len(b.opt.Only) > 0 && !slices.ContainsFunc(b.opt.Only, func(n string) bool { return !slices.Contains(alone, n) }) {
		return nil
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	random := make([]byte, 24)
	rand.Read(random) // never fails
	b.secret = "sk-bench-" + hex.EncodeToString(random)
	if b.certs, err = newCertificates(); err != nil {
		return err
	}
	if err := os.WriteFile(b.path(authorityFile), b.certs.Authority, 0o644); err != nil {
		return err
	}
	if err := b.nameHosts(); err != nil {
		return err
	}
	tcp, udp, err := yard()
	if err != nil {
		return err
	}
	defer tcp.Close()
	defer udp.Close()
	if _, err := b.servant("origin", originConfig{*b.certs, b.secret}, &b.origin); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	if _, err := b.servant("reverse", reverseConfig{*b.certs, b.secret, b.origin}, &b.reverse); err != nil {
		return fmt.Errorf("start Go's reverse proxy: %w", err)
	}
	if err := os.Mkdir(b.path("home"), 0o700); err != nil {
		return err
	}
	if b.gate, err = b.startGate(); err != nil {
		return fmt.Errorf("start the gate: %w", err)
	}
	if b.way, err = b.gate.open(ctx, "bench", b.policyText(), tcp, udp); err != nil {
		return fmt.Errorf("open the gate: %w", err)
	}
	b.mitm, b.missing[nameMitm] = b.startMitm(ctx)
	b.nginx, b.missing[nameNginx] = b.startNginx(ctx)
	return ctx.Err()
}

// nameHosts gives the names of the bench to whoever resolves them by the
// system's file, in this mount namespace.
func (b *bench) nameHosts() error {
	text := "127.0.0.1 localhost " + apiHost + " " + modelHost + " " + filesHost + "\n"
	file := b.path("hosts")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the host's mounts alone: %w", err)
	}
	if err := unix.Mount(file, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show names of its own: %w", err)
	}
	return nil
}
