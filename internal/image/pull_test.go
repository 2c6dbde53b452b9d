package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image/registry"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// served is a registry in this process; before, when set, sees each request first
// and says whether it has answered it.
type served struct {
	host   string
	mu     sync.Mutex
	before func(w http.ResponseWriter, r *http.Request) bool
	log    []string
}

func serve(t testing.TB) *served {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // nobody's own credentials
	s := &served{}
	inner := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.log = append(s.log, r.Method+" "+r.URL.Path+" "+r.Header.Get("Range"))
		before := s.before
		s.mu.Unlock()
		if before == nil || !before(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(web.Close)
	s.host = strings.TrimPrefix(web.URL, "http://")
	return s
}

func (s *served) intercept(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.log = f, nil
}

// asked counts requests whose line contains a text.
func (s *served) asked(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.log {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

func (s *served) push(t testing.TB, ref string, x any) {
	t.Helper()
	tag, err := name.NewTag(s.host+"/"+ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	switch x := x.(type) {
	case v1.Image:
		err = remote.Write(tag, x)
	case v1.ImageIndex:
		err = remote.WriteIndex(tag, x)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *served) config() registry.Config { return registry.Config{Insecure: []string{s.host}} }

func pull(t testing.TB, s *Store, c registry.Config, ref string) (Pulled, error) {
	t.Helper()
	client := registry.New(c)
	client.Pause = time.Millisecond
	defer client.Close()
	return s.Pull(context.Background(), client, ref, nil)
}

func mustPull(t testing.TB, s *Store, c registry.Config, ref string) Pulled {
	t.Helper()
	p, err := pull(t, s, c, ref)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// noise is content that does not compress.
func noise(n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b) // never fails
	return string(b)
}

func TestAnImageIsPulled(t *testing.T) {
	reg := serve(t)
	s := openStore(t, filepath.Join(t.TempDir(), "store"))
	shared := tarOf(t, entry{"shared", noise(200_000)})
	one, two := imageOf(t, shared, tarOf(t, entry{"a", "1"})), imageOf(t, shared, tarOf(t, entry{"b", "2"}))
	reg.push(t, "team/one:v1", one)
	reg.push(t, "team/two", two)
	var told []api.Progress
	client := registry.New(reg.config())
	defer client.Close()
	p, err := s.Pull(context.Background(), client, reg.host+"/team/one:v1", func(x api.Progress) { told = append(told, x) })
	if err != nil {
		t.Fatal(err)
	}
	if p.Name.Digest != digestOf(t, one) || p.Name.Image != digestOf(t, one) || p.Name.Layers != 2 || !reflect.DeepEqual(p.Root.Layers, layerDirs(t, s, one)) {
		t.Errorf("%+v", p)
	}
	if b, err := os.ReadFile(filepath.Join(p.Root.Layers[1], "a")); err != nil || string(b) != "1" {
		t.Errorf("its file: %q, %v", b, err)
	}
	if last := told[len(told)-1]; last.Step != "done" || last.Done != p.Name.Size || !slices.ContainsFunc(told, func(x api.Progress) bool { return x.Step == "download" && x.Total > 200_000 }) {
		t.Errorf("told %+v", told)
	}
	// A layer that another image has is not fetched again.
	reg.intercept(nil)
	mustPull(t, s, reg.config(), reg.host+"/team/two")
	layers, _ := two.Layers()
	if reg.asked(digestOf(t, layers[0])) != 0 || reg.asked(digestOf(t, layers[1])) != 1 {
		t.Errorf("requests %q", reg.log)
	}
	// Nor is anything that is there, and its tag is looked at anew.
	reg.push(t, "team/one:v1", two)
	reg.intercept(nil)
	if again := mustPull(t, s, reg.config(), reg.host+"/team/one:v1"); again.Name.Digest != digestOf(t, two) || reg.asked("/blobs/") != 0 || !again.Root.Reused {
		t.Errorf("%+v, requests %q", again, reg.log)
	}
	wantClean(t, s.dir)
}

func TestADigestPins(t *testing.T) {
	reg := serve(t)
	s := openStore(t, filepath.Join(t.TempDir(), "store"))
	good, bad := imageOf(t, tarOf(t, entry{"a", "1"})), imageOf(t, tarOf(t, entry{"a", "2"}))
	reg.push(t, "x:1", good)
	reg.push(t, "x:2", bad)
	ref := reg.host + "/x@" + digestOf(t, good)
	if p := mustPull(t, s, reg.config(), reg.host+"/x:2@"+digestOf(t, good)); p.Name.Name != ref || p.Name.Digest != digestOf(t, good) {
		t.Errorf("%+v", p)
	}
	// A registry that gives another image for the digest.
	s = openStore(t, filepath.Join(t.TempDir(), "store"))
	raw, _ := bad.RawManifest()
	reg.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
		_, _ = w.Write(raw) // the client sees what is missing
		return true
	})
	_, err := pull(t, s, reg.config(), ref)
	wantCode(t, err, bailey.CodeImageInvalid)
	if all, err := s.Names(); len(all) > 0 || err != nil {
		t.Errorf("names %v, %v", all, err)
	}
	wantClean(t, s.dir)
}

func TestThePlatformIsChosen(t *testing.T) {
	reg := serve(t)
	s := openStore(t, filepath.Join(t.TempDir(), "store"))
	s.machine = platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	index := v1.ImageIndex(empty.Index)
	images := map[string]v1.Image{}
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		images[arch] = configured(t, imageOf(t, tarOf(t, entry{"for-" + arch, ""})), platform{OS: "linux", Architecture: arch}, v1.Config{})
		a := mutate.IndexAddendum{Add: images[arch]}
		if arch != "s390x" { // one that does not say it
			a.Platform = &v1.Platform{OS: "linux", Architecture: arch}
		}
		index = mutate.AppendManifests(index, a)
	}
	reg.push(t, "many:1", index)
	reg.intercept(nil)
	p := mustPull(t, s, reg.config(), reg.host+"/many:1")
	if p.Name.Digest != digestOf(t, index) || p.Name.Image != digestOf(t, images["arm64"]) {
		t.Errorf("%+v", p)
	}
	other, _ := images["amd64"].Layers()
	if reg.asked(digestOf(t, other[0])) != 0 {
		t.Error("fetched what is for another machine")
	}
	s.machine.Architecture = "riscv64"
	_, err := pull(t, s, reg.config(), reg.host+"/many:1")
	if own := wantCode(t, err, bailey.CodeImageInvalid); !strings.Contains(own.Error(), "riscv64") {
		t.Error(own)
	}
}

func TestABrokenDownloadGoesOn(t *testing.T) {
	reg := serve(t)
	const size = 1 << 20
	img := imageOf(t, tarOf(t, entry{"big", noise(size)}))
	reg.push(t, "big:1", img)
	layers, _ := img.Layers()
	hex := strings.TrimPrefix(digestOf(t, layers[0]), "sha256:")
	compressed, _ := layers[0].Compressed()
	blob, err := io.ReadAll(compressed)
	if err != nil {
		t.Fatal(err)
	}
	for _, ranges := range []bool{true, false} {
		t.Run(fmt.Sprint("ranges ", ranges), func(t *testing.T) {
			s := openStore(t, filepath.Join(t.TempDir(), "store"))
			var sent atomic.Int64
			most := int64(size / 3)
			reg.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, hex) {
					return false
				}
				from := int64(0)
				if v, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && ranges {
					from, _ = strconv.ParseInt(strings.TrimSuffix(v, "-"), 10, 64)
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(blob)-1, len(blob)))
					w.Header().Set("Content-Length", fmt.Sprint(len(blob)-int(from)))
					w.WriteHeader(http.StatusPartialContent)
				}
				rest := blob[from:]
				if ranges || sent.Load() == 0 {
					rest = rest[:min(most, int64(len(rest)))]
				}
				if from == 0 {
					w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
				}
				sent.Add(int64(len(rest)))
				_, _ = w.Write(rest)
				if len(rest)+int(from) < len(blob) {
					panic(http.ErrAbortHandler) // the connection breaks
				}
				return true
			})
			p := mustPull(t, s, reg.config(), reg.host+"/big:1")
			if b, err := os.ReadFile(filepath.Join(p.Root.Layers[0], "big")); err != nil || string(b) != noise(size) {
				t.Errorf("the file has %d bytes, %v", len(b), err)
			}
			if ranges && sent.Load() != int64(len(blob)) || !ranges && sent.Load() < int64(len(blob))+1 {
				t.Errorf("%d bytes were sent of %d", sent.Load(), len(blob))
			}
			wantClean(t, s.dir)
		})
	}
	ranged := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, hex) {
			return false
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blob))
		return true
	}
	t.Run("by the next process", func(t *testing.T) {
		s := openStore(t, filepath.Join(t.TempDir(), "store"))
		// What one that was killed has left.
		if err := os.WriteFile(filepath.Join(s.dir, "blobs/partial", hex), blob[:size/2], 0o600); err != nil {
			t.Fatal(err)
		}
		reg.intercept(ranged)
		mustPull(t, s, reg.config(), reg.host+"/big:1")
		if reg.asked(fmt.Sprintf("bytes=%d-", size/2)) != 1 {
			t.Errorf("requests %q", reg.log)
		}
	})
	t.Run("damaged meanwhile", func(t *testing.T) {
		s := openStore(t, filepath.Join(t.TempDir(), "store"))
		if err := os.WriteFile(filepath.Join(s.dir, "blobs/partial", hex), make([]byte, size/2), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := pull(t, s, reg.config(), reg.host+"/big:1")
		wantCode(t, err, bailey.CodeImageInvalid)
		mustPull(t, s, reg.config(), reg.host+"/big:1") // it was thrown away
	})
}

func TestPullsOfOneLayerAreDoneOnce(t *testing.T) {
	reg := serve(t)
	dir := filepath.Join(t.TempDir(), "store")
	img := imageOf(t, tarOf(t, entry{"a", noise(100_000)}))
	reg.push(t, "x:1", img)
	layers, _ := img.Layers()
	begun, go_ := make(chan struct{}), make(chan struct{})
	var once sync.Once
	reg.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, digestOf(t, layers[0])) {
			once.Do(func() { close(begun) })
			<-go_
		}
		return false
	})
	var all sync.WaitGroup
	for range 4 {
		s := openStore(t, dir) // as another process would
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := pull(t, s, reg.config(), reg.host+"/x:1"); err != nil {
				t.Error(err)
			}
		}()
	}
	<-begun
	close(go_)
	all.Wait()
	if n := reg.asked(digestOf(t, layers[0])); n != 1 {
		t.Errorf("the layer was asked for %d times", n)
	}
}

func TestWhatIsRefused(t *testing.T) {
	reg := serve(t)
	plain := imageOf(t, tarOf(t, entry{"a", "1"}))
	layers, _ := plain.Layers()
	manifest := func(change func(*v1.Manifest)) func(http.ResponseWriter, *http.Request) bool {
		m, err := plain.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		m = m.DeepCopy()
		change(m)
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", string(m.MediaType))
			_, _ = w.Write(raw)
			return true
		}
	}
	text := func(mediaType, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", mediaType)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	blob := func(f func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, digestOf(t, layers[0])) {
				return false
			}
			f(w)
			return true
		}
	}
	big := strings.Repeat("x", registry.MaxManifest+1)
	for what, c := range map[string]struct {
		how  func(http.ResponseWriter, *http.Request) bool
		code bailey.Code
		says string
	}{
		"a manifest of the first schema": {text(string(types.DockerManifestSchema1Signed), `{"schemaVersion":1,"name":"x"}`), bailey.CodeImageInvalid, "first schema"},
		"one that hides it":              {text(string(types.OCIManifestSchema1), `{"schemaVersion":1}`), bailey.CodeImageInvalid, "first schema"},
		"no manifest at all":             {text(string(types.OCIManifestSchema1), `<html>`), bailey.CodeImageInvalid, "not readable"},
		"something else":                 {text("application/x", `{"schemaVersion":2}`), bailey.CodeImageInvalid, "application/x"},
		"a manifest without end":         {text(string(types.OCIManifestSchema1), big), bailey.CodeImageInvalid, "more than"},
		"foreign layers": {manifest(func(m *v1.Manifest) {
			m.Layers[0].MediaType, m.Layers[0].URLs = types.DockerForeignLayer, []string{"http://127.0.0.1/x"}
		}), bailey.CodeImageInvalid, "foreign"},
		"another place for a layer": {manifest(func(m *v1.Manifest) { m.Layers[0].URLs = []string{"http://127.0.0.1/x"} }), bailey.CodeImageInvalid, "foreign"},
		"a layer of another kind":   {manifest(func(m *v1.Manifest) { m.Layers[0].MediaType = "text/x" }), bailey.CodeImageInvalid, "text/x"},
		"a digest that is a path":   {manifest(func(m *v1.Manifest) { m.Layers[0].Digest.Hex = "../../../../etc/passwd" }), bailey.CodeImageInvalid, ""},
		"a huge layer":              {manifest(func(m *v1.Manifest) { m.Layers[0].Size = 1 << 60 }), bailey.CodeImageInvalid, "more than"},
		"a layer of less than none": {manifest(func(m *v1.Manifest) { m.Layers[0].Size = -1 }), bailey.CodeImageInvalid, ""},
		"a huge configuration":      {manifest(func(m *v1.Manifest) { m.Config.Size = 1 << 40 }), bailey.CodeImageInvalid, "more than"},
		"no image but an artefact":  {manifest(func(m *v1.Manifest) { m.Config.MediaType = "application/vnd.x" }), bailey.CodeImageInvalid, "no image to run"},
		"more layers than fit": {manifest(func(m *v1.Manifest) {
			for range maxLayers {
				m.Layers = append(m.Layers, m.Layers[0])
			}
		}), bailey.CodeImageInvalid, "can be stacked"},
		"more layers than the configuration": {manifest(func(m *v1.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) }), bailey.CodeImageInvalid, "the configuration"},
		"another layer": {blob(func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, strings.Repeat("x", int(sizeOf(t, layers[0]))))
		}), bailey.CodeImageInvalid, "digest"},
		"a longer layer": {blob(func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, strings.Repeat("x", int(sizeOf(t, layers[0]))+1))
		}), bailey.CodeImageInvalid, "longer"},
		"a deleted layer":    {blob(func(w http.ResponseWriter) { w.WriteHeader(404) }), bailey.CodeNotFound, "does not have it"},
		"a registry in pain": {blob(func(w http.ResponseWriter) { w.WriteHeader(503) }), bailey.CodeRegistry, "503"},
		"too many requests":  {blob(func(w http.ResponseWriter) { w.WriteHeader(429) }), bailey.CodeRateLimited, "too often"},
		"a forbidden layer":  {blob(func(w http.ResponseWriter) { w.WriteHeader(403) }), bailey.CodeUnauthorized, "does not let us"},
		"a redirect to cloud": {blob(func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://169.254.169.254/x")
			w.WriteHeader(307)
		}), bailey.CodeForbidden, "TLS"},
		"with TLS": {blob(func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://169.254.169.254/x")
			w.WriteHeader(307)
		}), bailey.CodeForbidden, "metadata"},
		"to another address": {blob(func(w http.ResponseWriter) { w.Header().Set("Location", "https://127.0.0.2:1/x"); w.WriteHeader(307) }), bailey.CodeForbidden, "not public"},
		"round and round": {blob(func(w http.ResponseWriter) {
			w.Header().Set("Location", "/v2/x/blobs/"+digestOf(t, layers[0]))
			w.WriteHeader(307)
		}), bailey.CodeForbidden, "more than 5"},
	} {
		t.Run(what, func(t *testing.T) {
			s := openStore(t, filepath.Join(t.TempDir(), "store"))
			reg.intercept(nil)
			reg.push(t, "x:1", plain)
			reg.intercept(c.how)
			_, err := pull(t, s, reg.config(), reg.host+"/x:1")
			if own := wantCode(t, err, c.code); !strings.Contains(own.Why, c.says) {
				t.Errorf("it says %q, not %q", own.Why, c.says)
			}
			if all, err := s.Names(); len(all) > 0 || err != nil {
				t.Errorf("names %v, %v", all, err)
			}
			wantClean(t, s.dir)
		})
	}
}

func sizeOf(t testing.TB, l v1.Layer) int64 {
	t.Helper()
	n, err := l.Size()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhereARegistryMayLie(t *testing.T) {
	reg := serve(t)
	reg.push(t, "x:1", imageOf(t, tarOf(t, entry{"a", "1"})))
	_, port, _ := strings.Cut(reg.host, ":")
	for what, c := range map[string]struct {
		config registry.Config
		ref    string
		code   bailey.Code
	}{
		"its own machine, unnamed":  {registry.Config{}, reg.host + "/x:1", bailey.CodeForbidden},
		"without TLS":               {registry.Config{Private: []string{reg.host}}, reg.host + "/x:1", bailey.CodeForbidden},
		"no registry":               {registry.Config{}, "x:1", bailey.CodeUsage},
		"the default, without TLS":  {registry.Config{Registry: reg.host}, "x:1", bailey.CodeForbidden},
		"the default":               {registry.Config{Registry: reg.host, Insecure: []string{reg.host}}, "x:1", ""},
		"a mirror":                  {registry.Config{Mirrors: map[string][]string{"registry.invalid": {reg.host}}, Insecure: []string{reg.host}}, "registry.invalid/x:1", ""},
		"a mirror, by another":      {registry.Config{Mirrors: map[string][]string{reg.host: {"127.0.0.1:1"}}, Insecure: []string{reg.host, "127.0.0.1:1"}}, reg.host + "/x:1", ""},
		"not there":                 {reg.config(), reg.host + "/y:1", bailey.CodeNotFound},
		"a name that is none":       {reg.config(), reg.host + "/X:1", bailey.CodeUsage},
		"a digest that is none":     {reg.config(), reg.host + "/x@sha256:12", bailey.CodeUsage},
		"localhost, unnamed":        {registry.Config{}, "localhost:" + port + "/x:1", bailey.CodeForbidden},
		"a name of nobody":          {registry.Config{}, "registry.invalid/x:1", bailey.CodeRegistry},
		"the metadata service":      {registry.Config{Insecure: []string{"169.254.169.254"}}, "169.254.169.254/x:1", bailey.CodeForbidden},
		"it under another notation": {registry.Config{Private: []string{"[::ffff:a9fe:a9fe]"}}, "[::ffff:a9fe:a9fe]:443/x:1", ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := openStore(t, filepath.Join(t.TempDir(), "store"))
			_, err := pull(t, s, c.config, c.ref)
			if what == "it under another notation" {
				if err == nil {
					t.Error("it was asked")
				}
				return
			}
			if got := bailey.CodeOf(err); got != c.code {
				t.Errorf("%v, want %q", err, c.code)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	for _, way := range []string{"basic", "token", "helper", "none", "wrong"} {
		t.Run(way, func(t *testing.T) {
			reg := serve(t)
			reg.push(t, "x:1", imageOf(t, tarOf(t, entry{"a", "1"})))
			var tokens, bare atomic.Int64
			basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:pw"))
			reg.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				got := r.Header.Get("Authorization")
				switch {
				case r.URL.Path == "/token":
					if got != basic {
						w.WriteHeader(401)
						return true
					}
					if r.URL.Query().Get("scope") != "repository:x:pull" {
						t.Errorf("asked for %q", r.URL.RawQuery)
					}
					tokens.Add(1)
					_, _ = io.WriteString(w, `{"token":"letmein"}`)
					return true
				case way == "token" && got == "Bearer letmein", way != "token" && got == basic:
					return false
				}
				bare.Add(1)
				challenge := `Basic realm="r"`
				if way == "token" {
					challenge = fmt.Sprintf(`Bearer realm="http://%s/token",service="s"`, reg.host)
				}
				w.Header().Set("WWW-Authenticate", challenge)
				w.WriteHeader(401)
				return true
			})
			dir := os.Getenv("DOCKER_CONFIG")
			password := "pw"
			if way == "wrong" {
				password = "other"
			}
			config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.host, base64.StdEncoding.EncodeToString([]byte("ann:"+password)))
			switch way {
			case "helper":
				config = fmt.Sprintf(`{"credHelpers":{%q:"test"}}`, reg.host)
				script := "#!/bin/sh\nread -r host\n[ \"$1 $host\" = \"get " + reg.host + "\" ] && echo '{\"Username\":\"ann\",\"Secret\":\"pw\"}'\n"
				if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
				t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			case "none":
				config = "{}"
			}
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			s := openStore(t, filepath.Join(t.TempDir(), "store"))
			_, err := pull(t, s, reg.config(), reg.host+"/x:1")
			if way == "none" || way == "wrong" {
				wantCode(t, err, bailey.CodeUnauthorized)
				return
			}
			if err != nil || bare.Load() == 0 || way == "token" && tokens.Load() == 0 {
				t.Errorf("%v, %d without, %d tokens", err, bare.Load(), tokens.Load())
			}
		})
	}
}

// TestCredentialsAreNotSentOn sends the request for a layer to another host.
func TestCredentialsAreNotSentOn(t *testing.T) {
	reg := serve(t)
	img := imageOf(t, tarOf(t, entry{"a", "1"}))
	reg.push(t, "x:1", img)
	layers, _ := img.Layers()
	compressed, _ := layers[0].Compressed()
	blob, _ := io.ReadAll(compressed)
	var seen atomic.Pointer[string]
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		seen.Store(&got)
		_, _ = w.Write(blob)
	}))
	defer other.Close()
	to, _ := url.Parse(other.URL)
	reg.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Header.Get("Authorization") == "":
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(401)
		case strings.Contains(r.URL.Path, digestOf(t, layers[0])):
			http.Redirect(w, r, "http://localhost:"+to.Port()+"/", http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.host, base64.StdEncoding.EncodeToString([]byte("ann:pw")))
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := reg.config()
	c.Insecure = append(c.Insecure, "localhost:"+to.Port())
	mustPull(t, openStore(t, filepath.Join(t.TempDir(), "store")), c, reg.host+"/x:1")
	if got := seen.Load(); got == nil || *got != "" {
		t.Errorf("the other host got %v", got)
	}
}
