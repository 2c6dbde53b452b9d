package way

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit/seal"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/netfilter"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// patience bounds every wait for what has to come.
const patience = 30 * time.Second

// The tests run in namespaces of their own, in which /etc/hosts is theirs.
const insideVariable, programsVariable = "BAILEY_WAY_TEST_INSIDE", "BAILEY_TEST_PROGRAMS"

func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) != "" {
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if ok, _ := testneeds.UserNS.Probe(); os.Geteuid() != 0 && !ok {
		os.Exit(m.Run()) // each test says what it lacks
	}
	code := 1
	if err := outer(&code); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// outer runs the tests anew in their namespaces.
func outer(code *int) error {
	env := append(os.Environ(), insideVariable+"=yes")
	if os.Getenv(programsVariable) == "" {
		dir, err := os.MkdirTemp("", "bailey-way-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		os.Chmod(dir, 0o755)
		cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/baileyd")
		cmd.Dir = "../../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w: %s", err, out)
		}
		env = append(env, programsVariable+"="+dir)
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}
	}
	err := cmd.Run()
	*code = cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return err
}

// upstreams are names that the gate can resolve.
var upstreams = []string{"api.test", "other.test", "third.test"}

func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("detach from the mounts outside: %w", err)
	}
	f, err := os.CreateTemp("", "hosts")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // the mount keeps it
	fmt.Fprintln(f, "127.0.0.1 localhost "+strings.Join(upstreams, " "))
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if err := unix.Mount(f.Name(), "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("replace /etc/hosts: %w", err)
	}
	return up()
}

// up brings the loopback of this thread's network up.
func up() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// network is a sandbox's network namespace, of which every way out ends at
// listeners.
type network struct {
	calls chan func()

	mu       sync.Mutex
	tcp, udp *os.File
	gone     bool
}

const outletPort = 41000

func newNetwork(t testing.TB) *network {
	t.Helper()
	if os.Getenv(insideVariable) == "" {
		testneeds.Host(t, testneeds.UserNS)
	}
	n := &network{calls: make(chan func())}
	ready, ended := make(chan error), make(chan bool)
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: the thread ends
		ready <- n.build()
		for f := range n.calls {
			f()
		}
	}()
	t.Cleanup(func() {
		close(n.calls)
		<-ended
		n.mu.Lock()
		defer n.mu.Unlock()
		n.gone = true
		for _, f := range []*os.File{n.tcp, n.udp} {
			if f != nil {
				f.Close()
			}
		}
	})
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *network) build() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := up(); err != nil {
		return err
	}
	if err := toKernel(unix.NETLINK_ROUTE, netfilter.Routes(false)); err != nil {
		return err
	}
	if err := toKernel(unix.NETLINK_NETFILTER, netfilter.Rules(outletPort)); err != nil {
		return err
	}
	address := fmt.Sprintf(":%d", outletPort)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	defer u.Close()
	if n.tcp, err = l.(*net.TCPListener).File(); err != nil {
		return err
	}
	n.udp, err = u.(*net.UDPConn).File()
	return err
}

// listeners gives duplicates, as the keeper does; nil when the network is gone.
func (n *network) listeners() (tcp, udp *os.File) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone {
		return nil, nil
	}
	return duplicate(n.tcp), duplicate(n.udp)
}

func toKernel(protocol int, message []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	k, _, err := unix.Recvfrom(fd, answer, 0)
	if err == nil && k >= 20 {
		if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
			err = unix.Errno(-code)
		}
	}
	return err
}

// dial connects from inside.
func (n *network) dial(kind, to string) (c net.Conn, err error) {
	done := make(chan bool)
	n.calls <- func() {
		defer close(done)
		// A dialer without happy eyeballs stays on its goroutine, and so in the namespace.
		c, err = (&net.Dialer{Timeout: patience, FallbackDelay: -1}).DialContext(context.Background(), kind, to)
	}
	<-done
	if err == nil {
		c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// lookup asks for a name's address, again if the gate is being replaced.
func (n *network) lookup(t testing.TB, name string) netip.Addr {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		c, err := n.dial("udp", "198.18.0.1:53")
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		q := new(dns.Msg)
		q.SetQuestion(name+".", dns.TypeA)
		conn := &dns.Conn{Conn: c}
		err = conn.WriteMsg(q)
		var m *dns.Msg
		if err == nil {
			m, err = conn.ReadMsg()
		}
		c.Close()
		if err != nil {
			continue
		}
		if len(m.Answer) != 1 {
			t.Fatalf("%s: %v", name, m)
		}
		a, _ := netip.AddrFromSlice(m.Answer[0].(*dns.A).A)
		return a
	}
	t.Fatalf("%s: no answer", name)
	return netip.Addr{}
}

// upstream is what the gate leads to: a server over TLS that says what came.
type upstream struct {
	port  uint16
	roots string // file for SSL_CERT_FILE

	mu   sync.Mutex
	seen []string // "GET /path authorization"
}

func newUpstream(t testing.TB) *upstream {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "upstream"}, DNSNames: upstreams, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{roots: filepath.Join(t.TempDir(), "roots.pem")}
	if err := os.WriteFile(u.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	u.port = uint16(l.Addr().(*net.TCPAddr).Port)
	s := &http.Server{Handler: u}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line := strings.TrimSpace(r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization"))
	u.mu.Lock()
	u.seen = append(u.seen, line)
	u.mu.Unlock()
	io.WriteString(w, "hello from "+strings.Split(r.Host, ":")[0])
}

func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen)
}

func (u *upstream) last() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.seen) == 0 {
		return ""
	}
	return u.seen[len(u.seen)-1]
}

// yard is a data folder with ways over it, and what an engine would know.
type yard struct {
	t    testing.TB
	home string
	up   *upstream
	ways *Ways
	lost chan string

	mu     sync.Mutex
	saved  map[string]json.RawMessage
	full   error // of saving
	inside map[string]*network
	broken []string
	asked  chan control.Question
}

func newYard(t testing.TB) *yard {
	t.Helper()
	if os.Getenv(insideVariable) == "" {
		testneeds.Host(t, testneeds.UserNS)
	}
	y := &yard{t: t, home: t.TempDir(), up: newUpstream(t), lost: make(chan string, 64), saved: map[string]json.RawMessage{}, inside: map[string]*network{}, asked: make(chan control.Question, 64)}
	y.start()
	t.Cleanup(func() { y.ways.Shutdown() })
	return y
}

// start is a daemon that comes up.
func (y *yard) start() {
	y.t.Helper()
	var err error
	y.ways, err = Start(Options{
		Home: y.home, Daemon: filepath.Join(os.Getenv(programsVariable), "baileyd"), Env: append(os.Environ(), "SSL_CERT_FILE="+y.up.roots),
		Listeners: func(_ context.Context, sandbox string) (tcp, udp *os.File, err error) {
			y.mu.Lock()
			n := y.inside[sandbox]
			y.mu.Unlock()
			if n == nil {
				return nil, nil, nil
			}
			tcp, udp = n.listeners()
			return tcp, udp, nil
		},
		Saved: func(sandbox string, state json.RawMessage) error {
			y.mu.Lock()
			defer y.mu.Unlock()
			if y.full == nil {
				y.saved[sandbox] = state
			}
			return y.full
		},
		Asked: func(q control.Question) { y.asked <- q },
		Lost:  func(words string) { y.lost <- words },
		Broken: func(sandbox string, err error) {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.broken = append(y.broken, sandbox+": "+err.Error())
		},
	})
	if err != nil {
		y.t.Fatal(err)
	}
}

func duplicate(f *os.File) *os.File {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		panic(err)
	}
	return os.NewFile(uintptr(fd), "duplicate")
}

// sandbox is one, as its programs see it.
type sandbox struct {
	*network
	*Opened
	y       *yard
	id      string
	opening Opening
}

// policy reaches the upstream by these rules.
func (y *yard) policy(rules string) control.Policy {
	text := "version: 1\negress:\n  rules:\n" + strings.ReplaceAll(rules, "PORT", fmt.Sprintf("ports: [%d], internal: [127.0.0.0/8]", y.up.port))
	return control.Policy{Document: &control.Document{Name: "test", Text: []byte(text)}}
}

const (
	plainRule  = "    - {name: api, hosts: [api.test, other.test, third.test], methods: [GET], PORT}\n"
	secretRule = "    - {name: api, hosts: [api.test, other.test, third.test], methods: [GET], secret: key, PORT}\nsecrets:\n  key: {secret: TOKEN, env: TOKEN}\n"
)

func (y *yard) names(id string) string { return filepath.Join(y.home, "names-"+id) }

// open makes a sandbox with a network of its own, or that of an earlier life.
func (y *yard) open(o Opening, n *network) *sandbox {
	y.t.Helper()
	if n == nil {
		n = newNetwork(y.t)
	}
	o.Names, o.Level = y.names(o.Sandbox), bailey.IsolationContainer
	y.mu.Lock()
	y.inside[o.Sandbox] = n
	y.mu.Unlock()
	opened, err := y.ways.Open(y.t.Context(), o)
	if err != nil {
		y.t.Fatal(err)
	}
	y.mu.Lock()
	y.saved[o.Sandbox] = opened.Saved
	y.mu.Unlock()
	s := &sandbox{network: n, Opened: opened, y: y, id: o.Sandbox, opening: o}
	if err := s.attach(); err != nil {
		y.t.Fatal(err)
	}
	return s
}

// attach hands the listeners over.
func (s *sandbox) attach() error {
	tcp, udp := s.listeners()
	defer tcp.Close()
	defer udp.Close()
	return s.y.ways.Attach(s.y.t.Context(), s.id, tcp, udp)
}

// state is what an engine would have saved.
func (y *yard) state(id string) json.RawMessage {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.saved[id]
}

// set puts a value into the store.
func (y *yard) set(name, value string) {
	y.t.Helper()
	if _, err := secrets.Open(y.home).Set(name, secrets.Stdin, []byte(value)); err != nil {
		y.t.Fatal(err)
	}
}

// kill kills the gate and returns when it is known.
func (y *yard) kill() {
	y.t.Helper()
	if err := unix.Kill(y.ways.Pid(), unix.SIGKILL); err != nil {
		y.t.Fatal(err)
	}
	y.fallen()
}

func (y *yard) fallen() {
	y.t.Helper()
	select {
	case <-y.lost:
	case <-time.After(patience):
		y.t.Fatal("nobody says that the gate is gone")
	}
}

// verify checks the audit log's chain.
func (y *yard) verify() {
	y.t.Helper()
	if _, err := seal.Verify(filepath.Join(y.home, "audit"), filepath.Join(y.home, "keys"), nil); err != nil {
		y.t.Errorf("the audit log: %v", err)
	}
}

func (s *sandbox) file(p string) []byte {
	for _, f := range s.Files {
		if f.Path == p {
			return f.Content
		}
	}
	s.y.t.Fatalf("there is no %s", p)
	return nil
}

func (s *sandbox) env(name string) string {
	for _, kv := range s.Env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// tls connects to an address as what the sandbox takes for a host.
func (s *sandbox) tls(to netip.Addr, host string) (*tls.Conn, error) {
	c, err := s.dial("tcp", netip.AddrPortFrom(to, s.y.up.port).String())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.file("/etc/bailey/ca.pem"))
	t := tls.Client(c, &tls.Config{ServerName: host, RootCAs: roots})
	if err := t.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// get makes one request to an address, and gives status and body.
func (s *sandbox) get(to netip.Addr, host, path, authorization string) (int, string, error) {
	c, err := s.tls(to, host)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	return exchange(c, fmt.Sprintf("%s:%d", host, s.y.up.port), path, authorization)
}

func exchange(c net.Conn, host, path, authorization string) (int, string, error) {
	r, err := http.NewRequest("GET", "https://"+host+path, nil)
	if err != nil {
		return 0, "", err
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if err := r.Write(c); err != nil {
		return 0, "", err
	}
	a, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	return a.StatusCode, string(text), err
}

// again is get by a program that tries until it has an answer.
func (s *sandbox) again(to netip.Addr, host, path, authorization string) (int, string) {
	s.y.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		code, text, err := s.get(to, host, path, authorization)
		if err == nil {
			return code, text
		}
		if time.Now().After(deadline) {
			s.y.t.Fatalf("%s%s: %v", host, path, err)
		}
	}
}

// eventually waits until something holds.
func (y *yard) eventually(what string, holds func() bool) {
	y.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			y.t.Fatal("not in time: " + what)
		}
	}
}
