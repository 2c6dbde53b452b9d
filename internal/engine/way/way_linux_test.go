package way

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// same checks that a sandbox's programs find all as it was: the authority they
// trust, the address they know, the placeholder they have. It makes one request.
func (s *sandbox) same(api netip.Addr, token, value string) {
	s.y.t.Helper()
	code, text := s.again(api, "api.test", "/v1", "Bearer "+token)
	if code != 200 || text != "hello from api.test" {
		s.y.t.Fatalf("%d %s", code, text)
	}
	if got, want := s.y.up.last(), "GET /v1 Bearer "+value; got != want {
		s.y.t.Errorf("upstream saw %q, want %q", got, want)
	}
	if a := s.lookup(s.y.t, "api.test"); a != api {
		s.y.t.Errorf("api.test was %s and is %s", api, a)
	}
}

// TestGateDies: a gate that is killed while a sandbox lives is followed by one in
// which everything is as it was; requests that are made meanwhile wait for it, and
// nothing gets out another way.
func TestGateDies(t *testing.T) {
	y := newYard(t)
	y.set("TOKEN", "real-value-of-the-token")
	s := y.open(Opening{Sandbox: "one", Lineage: "family", Policy: y.policy(secretRule)}, nil)
	s.lookup(t, "other.test") // so that the order of names counts
	api, token := s.lookup(t, "api.test"), s.env("TOKEN")
	if len(token) < 10 || !slices.Contains(s.Placeholders, "TOKEN") || token == "real-value-of-the-token" {
		t.Fatalf("the placeholder is %q", token)
	}
	s.same(api, token, "real-value-of-the-token")
	open, err := s.tls(api, "api.test")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	pid := y.ways.Pid()
	y.kill()
	if _, _, err := exchange(open, "api.test", "/late", ""); err == nil {
		t.Error("a stream outlives its gate")
	}
	before := y.up.count()
	s.same(api, token, "real-value-of-the-token")
	if n := y.up.count(); n != before+1 {
		t.Errorf("upstream saw %d requests, not one", n-before)
	}
	if now := y.ways.Pid(); now == pid || now == 0 {
		t.Errorf("the gate was process %d and is %d", pid, now)
	}
	if a := s.lookup(t, "third.test"); a == api || a == s.lookup(t, "other.test") {
		t.Errorf("%s is two names'", a)
	}
	// Twice in a row, and with a second sandbox that comes between.
	two := y.open(Opening{Sandbox: "two", Lineage: "others", Policy: y.policy(secretRule)}, nil)
	y.kill()
	s.same(api, token, "real-value-of-the-token")
	if code, text := two.again(two.lookup(t, "api.test"), "api.test", "/", "Bearer "+token); code != 403 {
		t.Errorf("another sandbox's placeholder: %d %s", code, text)
	}
	if _, err := y.ways.Open(t.Context(), Opening{Sandbox: "one"}); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("opened twice: %v", err)
	}
	c, err := y.ways.Close(t.Context(), "one")
	if err != nil || c.Requests == 0 {
		t.Errorf("closed: %+v, %v", c, err)
	}
	if _, err := y.ways.Close(t.Context(), "one"); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if err := s.attach(); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("attached after the end: %v", err)
	}
	if len(y.broken) > 0 {
		t.Errorf("broken: %q", y.broken)
	}
	y.verify()
}

// TestDaemonDies: another daemon opens what it knows with what was saved.
func TestDaemonDies(t *testing.T) {
	y := newYard(t)
	y.set("TOKEN", "real-value-of-the-token")
	o := Opening{Sandbox: "one", Lineage: "family", Policy: y.policy(secretRule)}
	s := y.open(o, nil)
	api, token := s.lookup(t, "api.test"), s.env("TOKEN")
	s.same(api, token, "real-value-of-the-token")
	y.ways.Shutdown()
	y.start()
	o.Saved = y.state("one")
	next := y.open(o, s.network)
	if !bytes.Equal(next.file("/etc/bailey/ca.pem"), s.file("/etc/bailey/ca.pem")) || next.env("TOKEN") != token {
		t.Error("the sandbox was given something else than before")
	}
	s.same(api, token, "real-value-of-the-token")
	// When nobody of the lineage is left its authority is gone for good.
	if _, err := y.ways.Close(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := y.ways.Forget(t.Context(), "family"); err != nil {
			t.Fatal(err)
		}
	}
	if again := y.open(o, s.network); bytes.Equal(again.file("/etc/bailey/ca.pem"), s.file("/etc/bailey/ca.pem")) {
		t.Error("a destroyed authority came back")
	}
	y.verify()
}

// TestFork: a copy knows the names and trusts the authority of its parent, and has
// placeholders of its own.
func TestFork(t *testing.T) {
	y := newYard(t)
	y.set("TOKEN", "real-value-of-the-token")
	parent := y.open(Opening{Sandbox: "parent", Lineage: "family", Policy: y.policy(secretRule)}, nil)
	parent.lookup(t, "other.test")
	api, token := parent.lookup(t, "api.test"), parent.env("TOKEN")
	if err := CopyNames(y.names("parent"), y.names("child")); err != nil {
		t.Fatal(err)
	}
	child := y.open(Opening{Sandbox: "child", Lineage: "family", Policy: y.policy(secretRule)}, nil)
	own := child.env("TOKEN")
	if own == token || own == "" {
		t.Fatalf("the child's placeholder is %q, the parent's %q", own, token)
	}
	child.same(api, own, "real-value-of-the-token")
	if code, text := child.again(api, "api.test", "/", "Bearer "+token); code != 403 {
		t.Errorf("the parent's placeholder: %d %s", code, text)
	}
	if !bytes.Equal(child.file("/etc/bailey/ca.pem"), parent.file("/etc/bailey/ca.pem")) {
		t.Error("the lineage has two authorities")
	}
	if _, err := y.ways.Close(t.Context(), "parent"); err != nil {
		t.Fatal(err)
	}
	child.same(api, own, "real-value-of-the-token")
	if err := CopyNames(y.names("nobody"), y.names("grandchild")); err != nil {
		t.Errorf("of a sandbox without names: %v", err)
	}
}

// TestSecretsGoOn: a secret that is rotated while a sandbox sleeps has its new
// value when it goes on (T14), and what was revoked stays so in the next gate.
func TestSecretsGoOn(t *testing.T) {
	y := newYard(t)
	y.set("TOKEN", "first-value-of-the-token")
	s := y.open(Opening{Sandbox: "one", Lineage: "family", Policy: y.policy(secretRule)}, nil)
	api, token := s.lookup(t, "api.test"), s.env("TOKEN")
	s.same(api, token, "first-value-of-the-token")
	if err := y.ways.Detach(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	y.set("TOKEN", "second-value-of-the-token")
	if err := s.attach(); err != nil {
		t.Fatal(err)
	}
	y.eventually("the new value", func() bool {
		s.again(api, "api.test", "/v1", "Bearer "+token)
		return strings.HasSuffix(y.up.last(), "second-value-of-the-token")
	})
	// While gate and daemon are away as well.
	y.ways.Shutdown()
	y.set("TOKEN", "third-value-of-the-token")
	y.start()
	o := s.opening
	o.Saved = y.state("one")
	y.open(o, s.network)
	s.same(api, token, "third-value-of-the-token")
	if err := y.ways.Revoke(t.Context(), "one", "key"); err != nil {
		t.Fatal(err)
	}
	before := y.up.count()
	for range 2 {
		if code, text := s.again(api, "api.test", "/v1", "Bearer "+token); code != 403 {
			t.Errorf("a revoked one: %d %s", code, text)
		}
		y.kill()
	}
	if n := y.up.count(); n != before {
		t.Errorf("%d requests with a revoked secret got out", n-before)
	}
	u, err := y.ways.Update(t.Context(), "one", y.policy(plainRule))
	if err != nil || u.Policy == s.Policy {
		t.Errorf("updated: %+v, %v", u, err)
	}
	y.kill()
	if code, text := s.again(api, "api.test", "/", ""); code != 200 {
		t.Errorf("under the new policy, in the next gate: %d %s", code, text)
	}
}

// TestVaultDies: without it no secret can be used, so that both are started anew.
func TestVaultDies(t *testing.T) {
	y := newYard(t)
	y.set("TOKEN", "real-value-of-the-token")
	s := y.open(Opening{Sandbox: "one", Lineage: "family", Policy: y.policy(secretRule)}, nil)
	api, token := s.lookup(t, "api.test"), s.env("TOKEN")
	y.ways.mu.Lock()
	vault := y.ways.process.VaultPid()
	y.ways.mu.Unlock()
	if err := unix.Kill(vault, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	y.fallen()
	s.same(api, token, "real-value-of-the-token")
}

// TestOpenedAsTheVaultDies: who needs a vault that has just died is served by the next.
func TestOpenedAsTheVaultDies(t *testing.T) {
	y := newYard(t)
	y.set("TOKEN", "real-value-of-the-token")
	for _, id := range []string{"one", "two", "three"} {
		s := y.open(Opening{Sandbox: id, Lineage: "family", Policy: y.policy(secretRule)}, nil)
		s.same(s.lookup(t, "api.test"), s.env("TOKEN"), "real-value-of-the-token")
		y.ways.mu.Lock()
		vault := y.ways.process.VaultPid()
		y.ways.mu.Unlock()
		end, err := unix.PidfdOpen(vault, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(end)
		if err := unix.Kill(vault, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for n := 0; n != 1; {
			if n, err = unix.Poll([]unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		}
	}
	if err := y.ways.Forget(t.Context(), "other"); err != nil {
		t.Error(err)
	}
}

// TestLimitsGoOn: a limit does not begin anew with a gate, nor with a sandbox that
// is opened again.
func TestLimitsGoOn(t *testing.T) {
	y := newYard(t)
	s := y.open(Opening{Sandbox: "one", Lineage: "family",
		Policy: y.policy("    - {name: api, hosts: [api.test], methods: [GET], limits: {requests: 3}, PORT}\n")}, nil)
	api := s.lookup(t, "api.test")
	for range 2 {
		if code, text := s.again(api, "api.test", "/", ""); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
	}
	y.eventually("what was used is saved", func() bool {
		return strings.Contains(string(y.state("one")), `"requests":2`) || strings.Contains(string(y.state("one")), `"Requests":2`)
	})
	y.kill()
	if code, text := s.again(api, "api.test", "/", ""); code != 200 {
		t.Fatalf("the third: %d %s", code, text)
	}
	if _, err := y.ways.Close(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	o := s.opening
	o.Saved = y.state("one")
	y.open(o, s.network)
	if code, text := s.again(api, "api.test", "/", ""); code != 403 {
		t.Errorf("the fourth: %d %s", code, text)
	}
}

// TestClosedUnsaved: a way whose state cannot be saved is told so when it is closed, and
// can be opened again all the same.
func TestClosedUnsaved(t *testing.T) {
	y := newYard(t)
	s := y.open(Opening{Sandbox: "one", Lineage: "family", Policy: y.policy(plainRule)}, nil)
	api := s.lookup(t, "api.test")
	if code, text := s.again(api, "api.test", "/", ""); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	full := errors.New("the disk is full")
	y.mu.Lock()
	y.full = full
	y.mu.Unlock()
	if _, err := y.ways.Close(t.Context(), "one"); !errors.Is(err, full) {
		t.Errorf("closed: %v", err)
	}
	y.mu.Lock()
	y.full = nil
	y.mu.Unlock()
	if list := y.ways.Opened(); len(list) > 0 {
		t.Errorf("open are %v", list)
	}
	o := s.opening
	o.Saved = y.state("one")
	again := y.open(o, s.network)
	if code, text := again.again(api, "api.test", "/", ""); code != 200 {
		t.Errorf("opened again: %d %s", code, text)
	}
}

// TestBrokenWay: what cannot be opened again is told, fails closed, and comes back
// when it can.
func TestBrokenWay(t *testing.T) {
	y := newYard(t)
	s := y.open(Opening{Sandbox: "one", Lineage: "family", Policy: y.policy(plainRule)}, nil)
	api := s.lookup(t, "api.test")
	text, err := os.ReadFile(y.names("one"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(y.names("one"), []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	y.kill()
	y.eventually("it is told", func() bool {
		y.mu.Lock()
		defer y.mu.Unlock()
		return len(y.broken) == 1 && strings.Contains(y.broken[0], "damaged")
	})
	if err := s.attach(); bailey.CodeOf(err) != bailey.CodeStorage {
		t.Errorf("attached: %v", err)
	}
	if n := y.up.count(); n != 0 {
		t.Errorf("%d requests got out", n)
	}
	if err := os.WriteFile(y.names("one"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.attach(); err != nil {
		t.Fatal(err)
	}
	if code, text := s.again(api, "api.test", "/", ""); code != 200 {
		t.Errorf("%d %s", code, text)
	}
}

// TestUsed: what moves is seen, also in a stream that stays open; what does not is
// not, however often one looks.
func TestUsed(t *testing.T) {
	y := newYard(t)
	s := y.open(Opening{Sandbox: "one", Policy: y.policy(plainRule)}, nil)
	activity := func() int64 {
		t.Helper()
		used, err := y.ways.Used(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return used["one"].Activity
	}
	if n := activity(); n != 0 {
		t.Errorf("%d before anything has moved", n)
	}
	api := s.lookup(t, "api.test")
	c, err := s.tls(api, "api.test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	still := func() int64 { // what is on its way has come
		var last int64 = -1
		y.eventually("nothing moves", func() bool {
			now := activity()
			same := now == last
			last = now
			return same
		})
		return last
	}
	before := still()
	if _, err := c.Write([]byte("G")); err != nil { // a byte of a request that does not end
		t.Fatal(err)
	}
	y.eventually("one byte is seen", func() bool { return activity() > before })
	used, err := y.ways.Used(t.Context())
	if err != nil || used["one"].Open != 1 {
		t.Errorf("%+v, %v", used, err)
	}
	c.Close()
	y.eventually("it is closed", func() bool {
		used, err := y.ways.Used(t.Context())
		return err == nil && used["one"].Open == 0
	})
	if used, err = y.ways.Used(t.Context()); err != nil || used["two"].Activity != 0 {
		t.Errorf("%+v, %v", used, err)
	}
}

// TestShutdown: nothing is left, and whoever comes later is told.
func TestShutdown(t *testing.T) {
	y := newYard(t)
	y.open(Opening{Sandbox: "one", Lineage: "family", Policy: y.policy(plainRule)}, nil)
	pid := y.ways.Pid()
	y.ways.Shutdown()
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the gate is there: %v", err)
	}
	if err := y.ways.Detach(t.Context(), "one"); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("detached: %v", err)
	}
	y.start() // for the cleanup
}
