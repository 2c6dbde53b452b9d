package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/server"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
)

// TestEveryMethod calls all there is: every method of the engine is reached.
func TestEveryMethod(t *testing.T) {
	d, c := serve(t, server.Config{})
	ctx := t.Context()
	check := func(what string, err error, ok ...bool) {
		t.Helper()
		if err != nil || slices.Contains(ok, false) {
			t.Errorf("%s: %v %v", what, err, ok)
		}
	}
	i, err := c.Info(ctx)
	check("info", err, i.API == "v1", i.Home == "/data")
	s, err := c.Create(ctx, api.SandboxSpec{Name: "a", Labels: map[string]string{"x": "1"}, Mounts: []string{"/srv:ro"}})
	check("create", err)
	for range 4 {
		_, err := c.Create(ctx, api.SandboxSpec{Labels: map[string]string{"x": "2"}})
		check("create", err)
	}
	n := 0
	for b, err := range c.AllSandboxes(ctx, api.SandboxQuery{Limit: 2}) {
		check("list", err, b.Owner != "")
		n++
	}
	l, err := c.Sandboxes(ctx, api.SandboxQuery{Labels: map[string]string{"x": "1"}, States: []api.State{api.StateRunning}})
	check("list by label", err, n == 5, len(l.Sandboxes) == 1, len(l.Sandboxes) == 1 && l.Sandboxes[0].ID == s.Ref())
	b, err := c.Sandbox("a").Info(ctx)
	check("look", err, b.ID == s.Ref())
	r, err := s.Pause(ctx, api.PauseRequest{ToDisk: true})
	check("pause", err, r.Act == "stop")
	b, err = s.Resume(ctx)
	check("resume", err, b.State == api.StateRunning)
	b, err = s.Extend(ctx, api.ExtendRequest{Timeout: api.Lifetime{Never: true}})
	check("extend", err, b.Timeout.Never)
	_, err = s.Renew(ctx)
	check("renew", err)
	h, err := s.Hold(ctx, api.HoldRequest{For: api.Duration(time.Minute)})
	check("hold", err, h.ID != "")
	check("release", s.Release(ctx, h.ID))
	st, err := s.Stats(ctx)
	check("stats", err, st.Pids == -1)
	port, err := s.Expose(ctx, api.PortRequest{Port: 80, Public: true})
	check("expose", err, port.Port == 80)
	link, err := s.PortLink(ctx, 80, time.Hour)
	check("link", err, link.URL == "https://80-"+s.Ref()+"/")
	ports, err := s.Ports(ctx)
	check("ports", err, len(ports) == 0)
	check("close", s.ClosePort(ctx, 80))
	b, err = s.UpdatePolicy(ctx, api.PolicyRequest{Allow: []string{"a.test"}})
	check("policy", err, b.Egress == "a.test")
	b, err = s.AddMount(ctx, api.MountRequest{Volume: &api.VolumeMount{Volume: "v", Target: "/v"}})
	check("mount", err, len(b.Volumes) == 1)

	res, err := s.Run(ctx, api.ExecSpec{Args: []string{"both"}})
	check("run", err, string(res.Out) == "out\n", string(res.Err) == "err\n", *res.ExitCode == 0)
	x, err := s.Start(ctx, api.ExecSpec{Args: []string{"cat"}, Stdin: true})
	check("start", err)
	check("resize", x.Resize(ctx, api.Window{Rows: 1, Cols: 2}))
	check("write", x.Write(ctx, strings.NewReader("hi"), true))
	e, err := x.Wait(ctx)
	check("wait", err, e.State == api.ExecEnded)
	e, err = x.Info(ctx)
	check("exec", err, *e.ExitCode == 0)
	var out bytes.Buffer
	_, err = x.Copy(ctx, &out, nil)
	check("copy", err, out.String() == "hi")
	rd, at, err := x.Read(ctx, api.Stdout, 1)
	check("read", err, at == 1)
	if err == nil {
		text, err := io.ReadAll(rd)
		check("read", err, string(text) == "i", rd.Close() == nil)
	}
	all, err := s.Execs(ctx)
	check("execs", err, len(all) == 2)
	x, err = s.Start(ctx, api.ExecSpec{Args: []string{"sleep"}})
	check("start", err)
	check("signal", x.Signal(ctx, "SIGTERM"))

	p, err := s.Snapshot(ctx, api.SnapshotSpec{Name: "n"})
	check("snapshot", err, p.Name == "n")
	p, err = c.Snapshot(ctx, "p1")
	check("snapshot", err, p.ID == "p1")
	ps, err := c.Snapshots(ctx, "a", true)
	check("snapshots", err, len(ps) == 1, ps[0].Checkpoint)
	check("delete snapshot", c.DeleteSnapshot(ctx, "p1"))
	fs, err := s.Fork(ctx, api.ForkRequest{Count: 3})
	check("fork", err, len(fs) == 3)
	p, err = s.Checkpoint(ctx, "c")
	check("checkpoint", err, p.Checkpoint)
	n = 0
	for ch, err := range s.Diff(ctx, "c1", "") {
		check("diff", err, ch.Op == "added")
		n++
	}
	check("diff", nil, n == 3)
	r, err = s.Undo(ctx, api.UndoRequest{Steps: 1})
	check("undo", err, r.Act == "undo")
	up, err := s.Promote(ctx, bailey.IsolationGVisor)
	check("promote", err, up.Isolation == bailey.IsolationGVisor)
	bi, err := s.Bisect(ctx, api.BisectRequest{Good: "c1", Args: []string{"true"}})
	check("bisect", err, bi.First == "c3")
	ex, err := c.ExportSnapshot(ctx, "p1")
	check("export", err)
	p, err = c.ImportSnapshot(ctx, "in", ex)
	check("import", err, p.Bytes == int64(len("an archive")), ex.Close() == nil)

	ts, err := c.Templates(ctx)
	check("templates", err, len(ts) == 1)
	var steps []string
	tp, err := c.BuildTemplate(ctx, api.BuildSpec{Name: "t"}, strings.NewReader("context"), func(p api.Progress) { steps = append(steps, p.Step) })
	check("build", err, tp.Name == "t", slices.Equal(steps, []string{"RUN true", "done"}))
	_, err = c.BuildTemplate(ctx, api.BuildSpec{Name: "t", Target: "broken"}, strings.NewReader("context"), nil)
	check("broken build", nil, bailey.CodeOf(err) == bailey.CodeBuildFailed)
	et, err := c.ExportTemplate(ctx, "a/b:latest")
	check("export template", err, et.Close() == nil)
	check("delete template", c.DeleteTemplate(ctx, "a/b:latest"))
	im, err := c.PullImage(ctx, "registry.test/x:1", nil)
	check("pull", err, im.Layers == 3)
	_, err = c.Images(ctx)
	check("images", err)
	check("delete image", c.DeleteImage(ctx, "registry.test/x:1"))
	v, err := c.CreateVolume(ctx, "v", 5)
	check("volume", err, v.Limit == 5)
	vs, err := c.Volumes(ctx)
	check("volumes", err, len(vs) == 0)
	check("delete volume", c.DeleteVolume(ctx, "v"))
	g, err := c.GC(ctx, true)
	check("gc", err, len(g) == 1, !g[0].Done)
	k, err := c.CreateKey(ctx, api.KeySpec{Name: "k", Scopes: []string{"read"}})
	check("key", err, strings.HasPrefix(k.Token, "bailey_"))
	ks, err := c.Keys(ctx)
	check("keys", err, len(ks) == 1, ks[0].Token == "")
	check("delete key", c.DeleteKey(ctx, "k"))
	w, err := c.CreateWebhook(ctx, api.WebhookSpec{URL: "https://example.com/x"})
	check("webhook", err, w.Secret != "")
	ws, err := c.Webhooks(ctx)
	check("webhooks", err, len(ws) == 1, ws[0].Secret == "")
	check("delete webhook", c.DeleteWebhook(ctx, w.ID))
	m, err := c.Metrics(ctx)
	check("metrics", err)
	if err == nil {
		text, err := io.ReadAll(m)
		check("metrics", err, strings.Contains(string(text), `bailey_sandboxes{level="container",state="running"} 5`), m.Close() == nil)
	}
	testFiles(t, s)
	testSessions(t, c)
	testPort(t, s)
	stop := false
	err = c.Events(ctx, 0, func(ev api.Event) error {
		stop = ev.Kind == "sandbox.resumed"
		if stop {
			return context.Canceled
		}
		return nil
	})
	check("events", nil, stop, err == context.Canceled)
	check("delete", s.Delete(ctx))
	check("delete again", s.Delete(ctx))

	seen := map[string]bool{}
	for _, call := range d.engine.Calls() {
		name, _, _ := strings.Cut(call, " ")
		seen[name] = true
	}
	it := reflect.TypeFor[rest.Engine]()
	for m := range it.NumMethod() {
		if name := it.Method(m).Name; !seen[name] && !slices.Contains([]string{"WaitExec", "SessionEvents", "CloseSession", "ExportTemplate"}, name) {
			t.Errorf("nothing reaches %s", name) // those four are made of others in the stand-in
		}
	}
}

func testFiles(t *testing.T, s *client.Sandbox) {
	ctx, f := t.Context(), s.Files()
	w, err := f.WriteFile(ctx, "/d/a", []byte("one\x00two"), 0o600)
	if err != nil || w.Size != 7 {
		t.Errorf("write: %v %+v", err, w)
	}
	if w, err = f.Write(ctx, "/d/b", io.LimitReader(zeros{}, 1<<20), 0); err != nil || w.Size != 1<<20 {
		t.Errorf("write a stream: %v %+v", err, w)
	}
	if b, err := f.ReadFile(ctx, "/d/a"); err != nil || string(b) != "one\x00two" {
		t.Errorf("read: %v %q", err, b)
	}
	r, info, err := f.Open(ctx, "/d/a", 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "tw" || info.Mode != "0600" {
		t.Errorf("read a part: %v %q %+v", err, b, info)
	}
	r.Close()
	var names []string
	for i, err := range f.List(ctx, "/d", 1) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, i.Path)
	}
	if !slices.Equal(names, []string{"/d/a", "/d/b"}) {
		t.Errorf("list: %v", names)
	}
	if i, err := f.Stat(ctx, "/d/a"); err != nil || i.Size != 7 {
		t.Errorf("stat: %v %+v", err, i)
	}
	watching, stop := context.WithCancel(ctx)
	seen, ready := make(chan string, 10), make(chan bool, 1)
	ended := make(chan error)
	go func() {
		ended <- f.Watch(watching, "/d", func() { ready <- true }, func(ev api.WatchEvent) error { seen <- ev.Path; return nil })
	}()
	<-ready
	if err := f.Move(ctx, "/d/b", "/d/c"); err != nil {
		t.Error(err)
	}
	s.Resume(ctx) // the stand-in looks when something happens
	if p := <-seen; p != "/d/c" {
		t.Errorf("watch: %s", p)
	}
	stop()
	if err := <-ended; err != context.Canceled {
		t.Errorf("watch ended with %v", err)
	}
	if r, err := f.Search(ctx, api.SearchQuery{Path: "/", Text: "two"}); err != nil || len(r.Hits) != 1 {
		t.Errorf("search: %v %+v", err, r)
	}
	if err := f.Mkdir(ctx, "/d/e", 0); err != nil {
		t.Error(err)
	}
	if err := f.Remove(ctx, "/d/c", true); err != nil {
		t.Error(err)
	}
	tar, err := f.TarOut(ctx, "/d/a")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := f.TarIn(ctx, "/d/tar", tar); err != nil || r.Bytes != 7 || len(r.Skipped) != 1 {
		t.Errorf("tar: %v %+v", err, r)
	}
	tar.Close()
	if _, err := f.WriteFile(ctx, "/breaks", bytes.Repeat([]byte("x"), 100), 0); err != nil {
		t.Error(err)
	}
	if b, err := f.ReadFile(ctx, "/breaks"); bailey.CodeOf(err) != bailey.CodeSandboxLost || len(b) != 50 {
		t.Errorf("a file that ends half-way: %v, %d bytes", err, len(b))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func testSessions(t *testing.T, c *client.Client) {
	ctx := t.Context()
	n, err := c.NewSession(ctx, api.SessionSpec{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := c.Sessions(ctx, map[string]string{"a": "b"}); err != nil || len(l) != 1 {
		t.Errorf("sessions: %v %v", err, l)
	}
	if r, err := n.Execute(ctx, api.ExecuteRequest{Name: "step", Exec: api.ExecSpec{Args: []string{"cat"}}, Input: []byte{0, 1}}); err != nil || !bytes.Equal(r.Out, []byte{0, 1}) {
		t.Errorf("execute: %v %+v", err, r)
	}
	if ev, err := n.Append(ctx, api.SessionEvent{Kind: "note", Data: json.RawMessage(`{"a":1}`)}); err != nil || ev.Seq != 2 {
		t.Errorf("append: %v %+v", err, ev)
	}
	if i, err := n.Info(ctx); err != nil || i.Events != 2 {
		t.Errorf("session: %v %+v", err, i)
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
	var kinds []string
	if err := n.Events(ctx, 2, true, func(ev api.SessionEvent) error { kinds = append(kinds, ev.Kind); return nil }); err != nil || !slices.Equal(kinds, []string{"note", "closed"}) {
		t.Errorf("events: %v %v", err, kinds)
	}
}

func testPort(t *testing.T, s *client.Sandbox) {
	conn, err := s.DialPort(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(bytes.Repeat([]byte{0, 255}, 100000)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || !bytes.Equal(b, bytes.Repeat([]byte{0, 255}, 100000)) {
		t.Errorf("%d bytes come back: %v", len(b), err)
	}
}

func TestNoDaemon(t *testing.T) {
	home := t.TempDir()
	c, err := client.New(client.Options{URL: "unix://" + home + "/bailey.sock", Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Info(t.Context()); bailey.CodeOf(err) != bailey.CodeDaemonUnavailable || !strings.Contains(err.Error(), "bailey serve") {
		t.Errorf("without a socket: %v", err)
	}
	l, err := net.Listen("unix", filepath.Join(home, "bailey.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	c, err = client.New(client.Options{URL: "unix://" + home + "/bailey.sock", Patience: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Info(t.Context()); bailey.CodeOf(err) != bailey.CodeDaemonUnavailable {
		t.Errorf("with one that nobody listens on: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, url := range []string{"ftp://x", "http://example.com", "https://user@example.com", "https://x?y", "unix://x", "x", "http://"} {
		if _, err := client.New(client.Options{URL: url}); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := client.New(client.Options{Home: "x"}); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("a relative data folder: %v", err)
	}
}

// TestOverTCP: with a key, over TLS by the daemon's own authority.
func TestOverTCP(t *testing.T) {
	config := server.Config{Listen: "127.0.0.1:0"}
	config.TLS.Own = true
	d, local := serve(t, config)
	k, err := local.CreateKey(t.Context(), api.KeySpec{Name: "agent", Scopes: []string{"read", "write"}})
	if err != nil {
		t.Fatal(err)
	}
	opt := client.Options{URL: "https://" + d.tcp, Key: k.Token, CAFile: filepath.Join(d.home, "tls", "ca.pem")}
	c, err := client.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.CreateInfo(t.Context(), api.SandboxSpec{})
	if err != nil || s.Owner != "key:agent" {
		t.Fatalf("%v, owner %s", err, s.Owner)
	}
	if _, err := c.Create(t.Context(), api.SandboxSpec{Workspace: "/etc"}); bailey.CodeOf(err) != bailey.CodeForbidden {
		t.Errorf("a folder of the host: %v", err)
	}
	if _, err := c.Sandbox(s.ID).Run(t.Context(), api.ExecSpec{Args: []string{"echo"}}); bailey.CodeOf(err) != bailey.CodeForbidden {
		t.Errorf("without the scope exec: %v", err)
	}
	opt.Key = "bailey_x"
	if c, err = client.New(opt); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Info(t.Context()); bailey.CodeOf(err) != bailey.CodeUnauthorized {
		t.Errorf("with another key: %v", err)
	}
}
