package gatebench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// The others, as they are listed.
const (
	nameDirect  = "direct"
	nameGate    = "bailey gate"
	nameReverse = "ReverseProxy"
	nameMitm    = "mitmproxy"
	nameNginx   = "nginx"
)

// freePort finds a port for a program that cannot say which one it took.
func freePort() (port int, err error) {
	l, err := loopback(&port)
	if err != nil {
		return 0, err
	}
	return port, l.Close()
}

func listens(port int) bool {
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// dies has a program end with this one, whatever happens to it.
var dies = syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// mitmproxy is a program that puts an authority of its own between.
type mitmproxy struct {
	port      int
	authority []byte // PEM
}

func (b *bench) startMitm(ctx context.Context) (*mitmproxy, *result.Missing) {
	missing := func(err error) *result.Missing {
		return &result.Missing{Name: nameMitm, Why: err.Error()}
	}
	path, err := exec.LookPath("mitmdump")
	if err != nil {
		return nil, &result.Missing{Name: nameMitm, Why: "mitmdump is not installed (Debian's package mitmproxy)"}
	}
	m := &mitmproxy{}
	if m.port, err = freePort(); err != nil {
		return nil, missing(err)
	}
	dir := filepath.Join(b.opt.Dir, "mitmproxy")
	attr := dies
	cmd := exec.Command(path, "--quiet", "--mode", "regular", "--listen-host", "127.0.0.1", "--listen-port", strconv.Itoa(m.port),
		"--set", "confdir="+dir, "--set", "ssl_verify_upstream_trusted_ca="+b.path(authorityFile), "--set", "stream_large_bodies=1m",
		"--modify-headers", "/~d "+modelHost+"/Authorization/Bearer "+b.secret)
	cmd.SysProcAttr = &attr
	cmd.Env = append(os.Environ(), "HOME="+b.opt.Dir)
	c, err := start(b.opt.Dir, cmd)
	if err != nil {
		return nil, missing(err)
	}
	b.children = append(b.children, c)
	if err := c.until(ctx, "it listened", func() bool {
		m.authority, err = os.ReadFile(filepath.Join(dir, "mitmproxy-ca-cert.pem"))
		return err == nil && len(m.authority) > 0 && listens(m.port)
	}); err != nil {
		return nil, missing(err)
	}
	b.machine.Programs[nameMitm] = result.ProgramVersion(path, nil)
	return m, nil
}

// nginx passes TLS on by the name in the ClientHello.
type nginx struct{ port int }

// nginxModule is where Debian has the module for streams.
const nginxModule = "/usr/lib/nginx/modules/ngx_stream_module.so"

func (b *bench) startNginx(ctx context.Context) (*nginx, *result.Missing) {
	missing := func(err error) *result.Missing { return &result.Missing{Name: nameNginx, Why: err.Error()} }
	path, err := exec.LookPath("nginx")
	if err != nil {
		path = "/usr/sbin/nginx"
		if _, err := os.Stat(path); err != nil {
			return nil, &result.Missing{Name: nameNginx, Why: "it is not installed (Debian's packages nginx and libnginx-mod-stream)"}
		}
	}
	if _, err := os.Stat(nginxModule); err != nil {
		return nil, &result.Missing{Name: nameNginx, Why: "its module for streams is not installed (Debian's package libnginx-mod-stream)"}
	}
	n := &nginx{}
	if n.port, err = freePort(); err != nil {
		return nil, missing(err)
	}
	log, conf := b.path("nginx.log"), b.path("nginx.conf")
	text := fmt.Sprintf(`load_module %s;
daemon off;
master_process off;
pid %s;
error_log %s crit;
events {}
stream {
    map $ssl_preread_server_name $to { %s 127.0.0.1:%d; }
    server { listen 127.0.0.1:%d; ssl_preread on; proxy_pass $to; }
}
`, nginxModule, b.path("nginx.pid"), log, filesHost, b.origin.TLS, n.port)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, missing(err)
	}
	attr := dies
	cmd := exec.Command(path, "-p", b.opt.Dir, "-e", log, "-c", conf)
	cmd.SysProcAttr = &attr
	c, err := start(b.opt.Dir, cmd)
	if err != nil {
		return nil, missing(err)
	}
	b.children = append(b.children, c)
	if err := c.until(ctx, "it listened", func() bool { return listens(n.port) }); err != nil {
		return nil, missing(err)
	}
	b.machine.Programs[nameNginx] = nginxVersion(path)
	return n, nil
}

// nginxVersion asks for what nginx prints on its standard error.
func nginxVersion(path string) string {
	out, err := exec.Command(path, "-v").CombinedOutput()
	if err != nil {
		return "of unknown version"
	}
	return string(out[:max(0, len(out)-1)])
}
