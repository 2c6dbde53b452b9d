//go:build linux

package engine

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// Documents of policies that ask for more than a stranger may have.
const (
	asksEnv     = "version: 1\nenv:\n  pass: [BAILEY_TEST_OF_THE_DAEMON]\n"
	asksMount   = "version: 1\nmounts:\n  - source: /srv\n    target: /srv\n"
	asksSecret  = "version: 1\nsecrets:\n  x:\n    secret: TOKEN\n    env: TOKEN\n    hosts: [evil.example.com]\negress:\n  rules:\n    - hosts: [evil.example.com]\n      secret: x\n"
	asksPrivate = "version: 1\negress:\n  rules:\n    - hosts: [evil.example.com]\n      internal: [127.0.0.0/8]\n"
)

func asText(t *testing.T, text string) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRightsOfCallersElsewhere: who holds an API key writes the policies of its
// sandboxes, and gets nothing of the host by them: no variables of the daemon, no
// secrets, nothing of the host's network, no folders.
func TestRightsOfCallersElsewhere(t *testing.T) {
	t.Setenv("BAILEY_TEST_OF_THE_DAEMON", "precious")
	e := openEngine(t)
	key, admin := Caller{Name: "key:a"}, Caller{Name: "key:root", Admin: true}
	mine, err := e.Create(t.Context(), key, api.SandboxSpec{Isolation: bailey.IsolationProcess, Allow: []string{"example.com:443"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec  api.SandboxSpec
		admin bool // may
	}{
		"the daemon's environment": {spec: api.SandboxSpec{Policy: asText(t, asksEnv)}},
		"a folder":                 {spec: api.SandboxSpec{Policy: asText(t, asksMount)}},
		"a secret by a document":   {spec: api.SandboxSpec{Policy: asText(t, asksSecret)}, admin: true},
		"a secret by a flag":       {spec: api.SandboxSpec{Secrets: []string{"TOKEN@evil.example.com"}}, admin: true},
		"the host's network":       {spec: api.SandboxSpec{Policy: asText(t, asksPrivate)}, admin: true},
		"loopback":                 {spec: api.SandboxSpec{Allow: []string{"tcp://127.0.0.1:5432"}}, admin: true},
		"another spelling of it":   {spec: api.SandboxSpec{Allow: []string{"tcp://[::ffff:127.0.0.1]:5432"}}, admin: true},
		"a network":                {spec: api.SandboxSpec{Allow: []string{"10.0.0.0/8"}}, admin: true},
	} {
		t.Run(name, func(t *testing.T) {
			spec := c.spec
			spec.Isolation = bailey.IsolationProcess
			if _, err := e.Create(t.Context(), key, spec); bailey.CodeOf(err) != bailey.CodeForbidden {
				t.Errorf("create: %v", err)
			}
			if _, err := e.UpdatePolicy(t.Context(), key, mine.ID, c.spec); bailey.CodeOf(err) != bailey.CodeForbidden {
				t.Errorf("another policy: %v", err)
			}
			if _, err := e.NewSession(t.Context(), key, api.SessionSpec{Sandbox: spec}); bailey.CodeOf(err) != bailey.CodeForbidden {
				t.Errorf("a session: %v", err)
			}
			build := api.BuildSpec{Name: "x", Policy: c.spec.Policy, Allow: c.spec.Allow, Secrets: c.spec.Secrets}
			if _, err := e.BuildTemplate(t.Context(), key, build, strings.NewReader(""), nil); bailey.CodeOf(err) != bailey.CodeForbidden {
				t.Errorf("build: %v", err)
			}
			p, err := policyOf(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			if err := mayAsk(admin, p); (err == nil) != c.admin {
				t.Errorf("an administrator elsewhere: %v", err)
			}
			if err := mayAsk(me, p); err != nil {
				t.Errorf("a caller on the host: %v", err)
			}
		})
	}
	// A session does later what its owner asked for now.
	host := filepath.Join(t.TempDir(), "host")
	if err := os.MkdirAll(filepath.Join(host, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(t.Context(), key, api.SessionSpec{Sandbox: api.SandboxSpec{Image: host}})
	if err == nil {
		if _, err = e.Execute(t.Context(), key, s.ID, api.ExecuteRequest{Exec: api.ExecSpec{ID: "x", Args: []string{"true"}}}); err == nil || strings.Contains(err.Error(), host+"/") {
			t.Errorf("a session over a folder of the host: %v", err)
		}
	}
	if list, _, err := e.Sandboxes(t.Context(), Caller{Admin: true}, api.SandboxQuery{}); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestHostileSnapshots: what an archive says of its sandbox is bounded as what a
// caller says, and its policy gives nothing of the host that nobody here has given.
func TestHostileSnapshots(t *testing.T) {
	e := openEngine(t)
	a := create(t, e, process)
	var out bytes.Buffer
	if err := e.ExportSnapshot(t.Context(), me, snap(t, e, a.ID, api.SnapshotSpec{}).ID, &out); err != nil {
		t.Fatal(err)
	}
	take := func(t *testing.T, change func(config, policy map[string]any)) (api.Snapshot, error) {
		return e.ImportSnapshot(t.Context(), me, "", bytes.NewReader(forged(t, out.Bytes(), change)))
	}
	if s, err := take(t, func(map[string]any, map[string]any) {}); err != nil {
		t.Fatalf("the control: %v", err)
	} else if _, err := e.Create(t.Context(), me, api.SandboxSpec{Snapshot: s.ID}); err != nil {
		t.Fatalf("the control: %v", err)
	}
	many := map[string]any{}
	for i := range 1000 {
		many[strings.Repeat("l", 1+i%100)+hex.EncodeToString([]byte{byte(i), byte(i >> 8)})] = "x"
	}
	for name, change := range map[string]func(spec, config map[string]any){
		"disk of less than nothing":   func(s, _ map[string]any) { s["limits"] = map[string]any{"disk": -(1 << 50)} },
		"memory of less than nothing": func(s, _ map[string]any) { s["limits"] = map[string]any{"memory": -(1 << 50)} },
		"processors":                  func(s, _ map[string]any) { s["limits"] = map[string]any{"cpus": -4} },
		"a variable that is two":      func(s, _ map[string]any) { s["env"] = map[string]any{"A=B": "x"} },
		"a NUL in a variable":         func(s, _ map[string]any) { s["env"] = map[string]any{"A": "x\x00y"} },
		"a folder that is relative":   func(s, _ map[string]any) { s["workdir"] = "../.." },
		"labels without end":          func(s, _ map[string]any) { s["labels"] = many },
		"labels of its own":           func(_, c map[string]any) { c["labels"] = many },
		"an account that cannot be": func(_, c map[string]any) {
			account, _ := c["account"].(map[string]any)
			account["UID"] = -1
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := take(t, func(c, _ map[string]any) {
				spec, _ := c["spec"].(map[string]any)
				change(spec, c)
			})
			if bailey.CodeOf(err) != bailey.CodeRestoreIncomplete {
				t.Errorf("%v, %+v", err, s)
			}
		})
	}
	for name, policy := range map[string]string{"environment": asksEnv, "a folder": asksMount, "a secret": asksSecret, "the network": asksPrivate} {
		t.Run(name, func(t *testing.T) {
			s, err := take(t, func(_, p map[string]any) { p["policy"] = policy })
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Create(t.Context(), me, api.SandboxSpec{Snapshot: s.ID}); bailey.CodeOf(err) != bailey.CodeForbidden {
				t.Errorf("its policy is in force: %v", err)
			}
		})
	}
}

// forged gives an export with another configuration and policy, whose digests are
// right.
func forged(t *testing.T, archive []byte, change func(config, policy map[string]any)) []byte {
	t.Helper()
	files := map[string][]byte{}
	var names []string
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	read := func(name string, v any) {
		if err := json.Unmarshal(files[name], v); err != nil {
			t.Fatal(name, err)
		}
	}
	// write puts a blob in the place of another.
	write := func(d *descriptor, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		old := blobPath(d.Digest)
		sum := sha256.Sum256(b)
		d.Digest, d.Size = "sha256:"+hex.EncodeToString(sum[:]), int64(len(b))
		delete(files, old)
		files[blobPath(d.Digest)] = b
		names[slices.Index(names, old)] = blobPath(d.Digest)
	}
	var index, m manifest
	read("index.json", &index)
	read(blobPath(index.Manifests[0].Digest), &m)
	var config, policy map[string]any
	read(blobPath(m.Config.Digest), &config)
	read(blobPath(m.Layers[0].Digest), &policy)
	change(config, policy)
	write(m.Config, config)
	write(&m.Layers[0], policy)
	write(&index.Manifests[0], m)
	var err error
	if files["index.json"], err = json.Marshal(index); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil || len(slices.Collect(maps.Keys(files))) != len(names) {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestCachesOfAnotherOwner: what somebody's steps leave in a cache gets into nobody
// else's template, neither by the cache nor by a layer that was made with it.
func TestCachesOfAnotherOwner(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	e := openEngine(t)
	useRegistry(t, e, serveRegistry(t, map[string]v1.Image{"box:1": boxImage(t)}))
	build := func(who Caller, name, run string) string {
		t.Helper()
		files := filesTar(t, map[string]string{"Dockerfile": "FROM box:1\nRUN --mount=type=cache,id=shared,target=/c " + run + "\n"})
		if _, err := e.BuildTemplate(t.Context(), who, api.BuildSpec{Name: name}, bytes.NewReader(files), nil); err != nil {
			t.Fatal(err)
		}
		s, err := e.Create(t.Context(), me, api.SandboxSpec{Template: name})
		if err != nil {
			t.Fatal(err)
		}
		return sh(t, e, s.ID, "cat /got")
	}
	one, other := Caller{Name: "key:one"}, Caller{Name: "key:other"}
	const take = "cat /c/x > /got 2>/dev/null || echo nothing > /got"
	build(one, "fill", "echo poison > /c/x && echo filled > /got")
	if got := build(one, "own", take); got != "poison" {
		t.Errorf("an owner's own cache has %q", got)
	}
	if got := build(other, "others", take); got != "nothing" {
		t.Errorf("another owner's template has %q", got)
	}
}

// TestNamesOfOthers: what a stranger has named takes nobody's own sandbox away.
func TestNamesOfOthers(t *testing.T) {
	e := openEngine(t)
	one, other := Caller{Name: "key:one"}, Caller{Name: "key:other"}
	mine, err := e.Create(t.Context(), one, process)
	if err != nil {
		t.Fatal(err)
	}
	spec := process
	spec.Name = mine.ID[:5]
	if _, err := e.Create(t.Context(), other, spec); err != nil {
		t.Fatal(err)
	}
	if s, err := e.Sandbox(t.Context(), one, mine.ID[:5]); err != nil || s.ID != mine.ID {
		t.Errorf("%s, %v", s.ID, err)
	}
	if s, err := e.Sandbox(t.Context(), other, mine.ID[:5]); err != nil || s.ID == mine.ID {
		t.Errorf("%s, %v", s.ID, err)
	}
}
