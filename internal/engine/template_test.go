//go:build linux

package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image/registry"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// filesTar makes a tar: "->" begins a link's text, a slash at the end a folder.
func filesTar(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if link, ok := strings.CutPrefix(content, "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, link, 0
		} else if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// boxImage is an image of the machine's busybox.
func boxImage(t testing.TB) v1.Image {
	t.Helper()
	testneeds.Tool(t, "busybox")
	box, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"bin/busybox": string(box), "etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\n", "root/": "", "tmp/": "", "proc/": "", "sys/": "", "dev/": ""}
	for _, n := range []string{"sh", "cat", "ls", "rm", "mkdir", "echo", "touch", "id", "test", "true", "false", "sleep", "wget", "dd", "sync", "sha256sum", "find", "sort", "xargs", "grep"} {
		files["bin/"+n] = "->busybox"
	}
	raw := filesTar(t, files)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture, cf.Config.Env = "linux", runtime.GOARCH, []string{"PATH=/bin", "FROM_IMAGE=yes"}
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	return img
}

// serveRegistry serves images and gives the registry's host, which the data folder
// of an engine is told about.
func serveRegistry(t testing.TB, images map[string]v1.Image) string {
	t.Helper()
	web := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(web.Close)
	host := strings.TrimPrefix(web.URL, "http://")
	for ref, img := range images {
		tag, err := name.NewTag(host+"/"+ref, name.Insecure)
		if err == nil {
			err = remote.Write(tag, img)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return host
}

// useRegistry makes a registry an engine's default.
func useRegistry(t testing.TB, e *Engine, host string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.home, registry.ConfigFile), []byte("registry: "+host+"\ninsecure: ["+host+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func buildTemplate(t testing.TB, e *Engine, spec api.BuildSpec, files map[string]string) (api.Template, string, error) {
	t.Helper()
	var log strings.Builder
	tpl, err := e.BuildTemplate(t.Context(), me, spec, bytes.NewReader(filesTar(t, files)), func(p api.Progress) { log.WriteString(p.Step + p.Log + "\n") })
	return tpl, log.String(), err
}

// templateState gives a template as the list has it.
func templateState(t testing.TB, e *Engine, name string) *api.Template {
	t.Helper()
	list, err := e.Templates(t.Context(), me)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(x api.Template) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func TestImagesAndTemplates(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	e := openEngine(t)
	host := serveRegistry(t, map[string]v1.Image{"box:1": boxImage(t)})
	useRegistry(t, e, host)

	// A sandbox of an image that is not there yet.
	s := create(t, e, api.SandboxSpec{Image: "box:1"})
	if out := sh(t, e, s.ID, "echo $FROM_IMAGE; cat /etc/passwd"); !strings.HasPrefix(out, "yes\nroot:") {
		t.Errorf("it says %q", out)
	}
	if !strings.HasPrefix(s.Image, host+"/box@sha256:") {
		t.Errorf("its image is %q", s.Image)
	}
	images, err := e.Images(t.Context(), me)
	if err != nil || len(images) != 1 || images[0].Refs != 1 || images[0].Ref != host+"/box:1" {
		t.Errorf("images %+v, %v", images, err)
	}
	if err := e.DeleteImage(t.Context(), me, "box:1"); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("deleting it under a sandbox: %v", err)
	}

	// A template is built of it, in sandboxes.
	tpl, log, err := buildTemplate(t, e, api.BuildSpec{Name: "app", Tags: []string{"app:v1"}, Args: map[string]string{"WHO": "me"}}, map[string]string{
		"Dockerfile": "FROM box:1\nARG WHO\nCOPY hello /hello\nRUN echo built for $WHO > /made && rm /etc/group && cat /hello\nRUN --mount=type=cache,target=/c echo x > /c/x\nENV MORE=1\nWORKDIR /srv\n", "hello": "hi there\n"})
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if tpl.Name != "app:latest" || tpl.State != "ready" || tpl.Workdir != "/srv" || !strings.Contains(log, "hi there") {
		t.Errorf("%+v\n%s", tpl, log)
	}
	of := create(t, e, api.SandboxSpec{Template: "app"})
	if out := sh(t, e, of.ID, "cat /made /hello; ls /etc /c /srv 2>&1; echo $MORE $FROM_IMAGE"); !strings.HasPrefix(out, "built for me\nhi there\n") || strings.Contains(out, "group") || !strings.HasSuffix(out, "1 yes") {
		t.Errorf("it says %q", out)
	}
	if of.Template != "app:latest" || of.Workdir != "/srv" {
		t.Errorf("%+v", of)
	}
	if got := templateState(t, e, "app:latest"); got == nil || got.Refs != 1 {
		t.Errorf("listed %+v", got)
	}

	// A template goes, and what stands on it goes on (T79).
	for _, n := range []string{"app", "app:v1"} {
		if err := e.DeleteTemplate(t.Context(), me, n); err != nil {
			t.Fatal(err)
		}
	}
	if got := templateState(t, e, "app:latest"); got != nil {
		t.Errorf("it is listed: %+v", got)
	}
	if _, err := e.Pause(t.Context(), me, of.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	if out := sh(t, e, of.ID, "cat /made"); out != "built for me" {
		t.Errorf("after a new start: %q", out)
	}
	for _, id := range []string{s.ID, of.ID} {
		if err := e.Delete(t.Context(), me, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.DeleteImage(t.Context(), me, host+"/box:1"); err != nil {
		t.Fatal(err)
	}
	if images, err := e.Images(t.Context(), me); err != nil || len(images) > 0 {
		t.Errorf("images %+v, %v", images, err)
	}
	// Nothing of builds is left but caches.
	left, err := filepath.Glob(filepath.Join(e.home, buildsDir, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != cachesDir {
		t.Errorf("left: %q, %v", left, err)
	}
}

func TestABuildThatFails(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	e := openEngine(t)
	useRegistry(t, e, serveRegistry(t, map[string]v1.Image{"box:1": boxImage(t)}))
	if _, _, err := buildTemplate(t, e, api.BuildSpec{Name: "app"}, map[string]string{"Dockerfile": "FROM box:1\nRUN echo one > /v"}); err != nil {
		t.Fatal(err)
	}
	_, _, err := buildTemplate(t, e, api.BuildSpec{Name: "app"}, map[string]string{"Dockerfile": "FROM box:1\nRUN echo why; exit 7"})
	if bailey.CodeOf(err) != bailey.CodeBuildFailed || !strings.Contains(err.Error(), "Dockerfile:2") {
		t.Errorf("got %v", err)
	}
	got := templateState(t, e, "app:latest")
	if got == nil || got.State != "failed" || got.Error == nil || got.Error.Code != bailey.CodeBuildFailed {
		t.Errorf("%+v", got)
	}
	var log bytes.Buffer
	if err := e.BuildLog(t.Context(), me, "app", &log); err != nil || !strings.Contains(log.String(), "why\n") {
		t.Errorf("log %q, %v", &log, err)
	}
	// What was built before is used, and the sandbox says so.
	s := create(t, e, api.SandboxSpec{Template: "app"})
	if out := sh(t, e, s.ID, "cat /v"); out != "one" || len(s.Notes) == 0 || !strings.Contains(s.Notes[0], "has failed") {
		t.Errorf("%q, %q", out, s.Notes)
	}
	for _, spec := range []api.BuildSpec{{Name: "host"}, {Name: "A B"}, {Name: "x", Secrets: []string{"k"}}, {Name: "x", Warm: -1}, {Name: "x", Tags: []string{"/"}}} {
		if _, _, err := buildTemplate(t, e, spec, nil); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	if _, err := e.Create(t.Context(), me, api.SandboxSpec{Template: "none"}); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("of a template that is not there: %v", err)
	}
	other := Caller{Name: "uid:7"}
	if _, err := e.BuildTemplate(t.Context(), other, api.BuildSpec{Name: "app"}, nil, nil); bailey.CodeOf(err) != bailey.CodeForbidden {
		t.Errorf("replaced by another: %v", err)
	}
	if err := e.DeleteTemplate(t.Context(), other, "app"); bailey.CodeOf(err) != bailey.CodeForbidden {
		t.Errorf("deleted by another: %v", err)
	}
}

// TestABuildPassesTheGate fetches in a step and by ADD what the policy allows, and
// what it does not.
func TestABuildPassesTheGate(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	e := openEngine(t)
	useRegistry(t, e, serveRegistry(t, map[string]v1.Image{"box:1": boxImage(t)}))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "from "+r.URL.Path) }))
	defer web.Close()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(web.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	policy := func(host string) json.RawMessage {
		text, err := json.Marshal("version: 1\negress:\n  rules:\n    - {name: web, hosts: [" + host + "], methods: [GET], ports: [" + port + "], internal: [127.0.0.0/8]}\n")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for what, step := range map[string]string{"ADD": "ADD http://nothing.test:" + port + "/f /f", "RUN": "RUN wget -q -O /f http://nothing.test:" + port + "/f"} {
		_, log, err := buildTemplate(t, e, api.BuildSpec{Name: "no", Policy: policy("other.test")}, map[string]string{"Dockerfile": "FROM box:1\n" + step})
		if bailey.CodeOf(err) != bailey.CodeBuildFailed {
			t.Errorf("%s: %v\n%s", what, err, log)
		}
		// Without a policy there is no way out at all.
		if _, log, err = buildTemplate(t, e, api.BuildSpec{Name: "no"}, map[string]string{"Dockerfile": "FROM box:1\n" + step}); bailey.CodeOf(err) != bailey.CodeBuildFailed {
			t.Errorf("%s without a policy: %v\n%s", what, err, log)
		}
	}
	if _, _, err := buildTemplate(t, e, api.BuildSpec{Name: "no", Policy: json.RawMessage(`"nonsense: ["`)}, map[string]string{"Dockerfile": "FROM box:1\nRUN true"}); err == nil {
		t.Error("a policy that makes no sense was taken")
	}
	host := loopbackName(t)
	if host == "" {
		return // this machine has no name with a dot for its loopback: what is allowed is tested with the gate
	}
	tpl, log, err := buildTemplate(t, e, api.BuildSpec{Name: "yes", Policy: policy(host)}, map[string]string{
		"Dockerfile": "FROM box:1\nADD http://" + host + ":" + port + "/one /one\nRUN wget -q -O /two http://" + host + ":" + port + "/two\n"})
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	s := create(t, e, api.SandboxSpec{Template: tpl.Name})
	if out := sh(t, e, s.ID, "cat /one; echo; cat /two; ls /etc"); !strings.HasPrefix(out, "from /one\nfrom /two") || strings.Contains(out, "ca-cert") {
		t.Errorf("it has %q", out)
	}
}

// loopbackName finds a name with a dot that this machine's /etc/hosts has for the
// loopback.
func loopbackName(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.SplitSeq(string(text), "\n") {
		f := strings.Fields(l)
		if len(f) < 2 || f[0] != "127.0.0.1" {
			continue
		}
		if i := slices.IndexFunc(f, func(n string) bool { return n != f[0] && strings.Contains(n, ".") }); i > 0 {
			return f[i]
		}
	}
	return ""
}

// TestABuildIsEnded deletes a template under its build, and a caller goes away.
func TestABuildIsEnded(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	e := openEngine(t)
	useRegistry(t, e, serveRegistry(t, map[string]v1.Image{"box:1": boxImage(t)}))
	for _, how := range []string{"deleted", "cancelled"} {
		t.Run(how, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begun, ended := make(chan struct{}), make(chan error, 1)
			files := bytes.NewReader(filesTar(t, map[string]string{"Dockerfile": "FROM box:1\nRUN echo here-we-are; sleep 1000"}))
			go func() {
				_, err := e.BuildTemplate(ctx, me, api.BuildSpec{Name: "slow", NoCache: true}, files, func(p api.Progress) {
					if p.Log == "here-we-are\n" {
						close(begun)
					}
				})
				ended <- err
			}()
			select {
			case <-begun:
			case err := <-ended:
				t.Fatal(err)
			}
			if got := templateState(t, e, "slow:latest"); got == nil || got.State != "building" {
				t.Errorf("%+v", got)
			}
			if _, _, err := buildTemplate(t, e, api.BuildSpec{Name: "slow"}, nil); bailey.CodeOf(err) != bailey.CodeBusy {
				t.Errorf("a second build: %v", err)
			}
			if how == "deleted" {
				if err := e.DeleteTemplate(t.Context(), me, "slow"); err != nil {
					t.Fatal(err)
				}
			} else {
				cancel()
			}
			if err := <-ended; bailey.CodeOf(err) != bailey.CodeBuildFailed {
				t.Errorf("got %v", err)
			}
			if got := templateState(t, e, "slow:latest"); how == "deleted" && got != nil || how == "cancelled" && (got == nil || got.State != "failed") {
				t.Errorf("afterwards %+v", got)
			}
		})
	}
}

func TestStartAndReady(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	e := openEngine(t)
	useRegistry(t, e, serveRegistry(t, map[string]v1.Image{"box:1": boxImage(t)}))
	file := map[string]string{"Dockerfile": "FROM box:1\nRUN true\nRUN mkdir /d"}
	if _, log, err := buildTemplate(t, e, api.BuildSpec{Name: "up", Start: []string{"sh", "-c", "echo starting; sleep 0.3; touch /up; sleep 1000"}, Ready: []string{"test", "-e", "/up"}}, file); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	s := create(t, e, api.SandboxSpec{Template: "up"})
	if out := sh(t, e, s.ID, "ls /up"); out != "/up" {
		t.Errorf("it is not up: %q", out)
	}
	if x, err := e.Exec(t.Context(), me, s.ID, "start"); err != nil || x.State != api.ExecRunning {
		t.Errorf("start is %+v, %v", x, err)
	}
	if _, _, err := buildTemplate(t, e, api.BuildSpec{Name: "down", Start: []string{"sh", "-c", "echo no luck; exit 4"}, Ready: []string{"false"}}, file); err != nil {
		t.Fatal(err)
	}
	_, err := e.Create(t.Context(), me, api.SandboxSpec{Template: "down"})
	if bailey.CodeOf(err) != bailey.CodeSetupFailed || !strings.Contains(err.Error(), "status 4") || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("got %v", err)
	}
	list, _, err := e.Sandboxes(t.Context(), me, api.SandboxQuery{})
	if err != nil || len(list) != 1 {
		t.Errorf("left %+v, %v", list, err)
	}
}

func TestImagesThatAreNot(t *testing.T) {
	e := openEngine(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	for ref, code := range map[string]bailey.Code{
		"box:1":                             bailey.CodeUsage,
		"registry.invalid/box:1":            bailey.CodeRegistry,
		"127.0.0.1:1/box":                   bailey.CodeForbidden,
		"sha256:" + strings.Repeat("0", 64): bailey.CodeNotFound,
		"/no/such/file":                     bailey.CodeNotFound,
	} {
		if _, err := e.Create(t.Context(), me, api.SandboxSpec{Image: ref}); bailey.CodeOf(err) != code {
			t.Errorf("%s: %v, want %s", ref, err, code)
		}
	}
	remote := Caller{Name: "key:x"}
	if _, err := e.Create(t.Context(), remote, api.SandboxSpec{Image: "/etc"}); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("a path from elsewhere: %v", err)
	}
}

func TestVolumes(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	e := openEngine(t)
	if _, err := e.CreateVolume(t.Context(), me, "data", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CreateVolume(t.Context(), me, "data", 0); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("twice: %v", err)
	}
	for _, n := range []string{"", "a/b", "..", "a b"} {
		if _, err := e.CreateVolume(t.Context(), me, n, 0); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q: %v", n, err)
		}
	}
	spec := api.SandboxSpec{Volumes: []api.VolumeMount{{Volume: "data", Target: "/vol"}}}
	one, two := create(t, e, spec), create(t, e, spec)
	sh(t, e, one.ID, "echo from one > /vol/x")
	if out := sh(t, e, two.ID, "cat /vol/x; echo from two >> /vol/x"); out != "from one" {
		t.Errorf("the other sees %q", out)
	}
	ro := create(t, e, api.SandboxSpec{Volumes: []api.VolumeMount{{Volume: "data", Target: "/vol", ReadOnly: true}}})
	if out := sh(t, e, ro.ID, "cat /vol/x; touch /vol/y 2>/dev/null || echo refused"); out != "from one\nfrom two\nrefused" {
		t.Errorf("read-only: %q", out)
	}
	list, err := e.Volumes(t.Context(), me)
	if err != nil || len(list) != 1 || len(list[0].Users) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := e.DeleteVolume(t.Context(), me, "data"); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("under sandboxes: %v", err)
	}
	if _, err := e.Create(t.Context(), me, api.SandboxSpec{Volumes: []api.VolumeMount{{Volume: "none", Target: "/v"}}}); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := e.Create(t.Context(), Caller{Name: "uid:9"}, spec); bailey.CodeOf(err) != bailey.CodeForbidden {
		t.Errorf("another's: %v", err)
	}
	for _, s := range []api.Sandbox{one, two, ro} {
		if err := e.Delete(t.Context(), me, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	// It outlives them.
	again := create(t, e, spec)
	if out := sh(t, e, again.ID, "cat /vol/x"); out != "from one\nfrom two" {
		t.Errorf("afterwards: %q", out)
	}
	if err := e.Delete(t.Context(), me, again.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteVolume(t.Context(), me, "data"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(e.volumeDir("data")); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
}

func TestSizeLimits(t *testing.T) {
	e := openEngine(t)
	if os.Geteuid() != 0 {
		_, err := e.Create(t.Context(), me, api.SandboxSpec{Limits: bailey.Limits{Disk: 8 << 20}})
		_, verr := e.CreateVolume(t.Context(), me, "v", 8<<20)
		if bailey.CodeOf(err) != bailey.CodeLimitUnavailable || bailey.CodeOf(verr) != bailey.CodeLimitUnavailable {
			t.Errorf("%v, %v", err, verr)
		}
		return
	}
	testneeds.Tool(t, "mke2fs")
	testneeds.Host(t, testneeds.MountExt4)
	if _, err := e.CreateVolume(t.Context(), me, "v", 8<<20); err != nil {
		t.Fatal(err)
	}
	s := create(t, e, api.SandboxSpec{Limits: bailey.Limits{Disk: 16 << 20}, Volumes: []api.VolumeMount{{Volume: "v", Target: "/vol"}}})
	for _, at := range []string{"/big", "/vol/big"} {
		out := sh(t, e, s.ID, "dd if=/dev/zero of="+at+" bs=1M count=64 2>&1; true")
		if !strings.Contains(out, "No space left") {
			t.Errorf("%s: %q", at, out)
		}
	}
	// The sandbox works all the same (T32), also after a new start.
	sh(t, e, s.ID, "rm /big /vol/big && echo kept > /kept && echo kept > /vol/kept")
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	if out := sh(t, e, s.ID, "cat /kept /vol/kept"); out != "kept\nkept" {
		t.Errorf("after a new start: %q", out)
	}
	if err := e.Delete(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteVolume(t.Context(), me, "v"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "no loop device is left", func() bool {
		files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		return !slices.ContainsFunc(files, func(f string) bool {
			b, err := os.ReadFile(f)
			return err == nil && strings.HasPrefix(string(b), e.home)
		})
	})
}
