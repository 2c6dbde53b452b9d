package rootfs_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

func valid() rootfs.Root {
	return rootfs.Root{
		Version: rootfs.Version, Kind: rootfs.KindHost, Source: "host", Digest: "sha256:00",
		Layers: []string{"/s/layers/00/fs"}, IDs: rootfs.IDsHost,
		Binds:  []rootfs.Bind{{Source: "/usr", Target: "/usr"}},
		Config: rootfs.Config{Env: []string{"A=b"}, User: "1:2", Workdir: "/w", Labels: map[string]string{"k": "v"}},
	}
}

func TestParseReadsWhatIsWritten(t *testing.T) {
	want := valid()
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := rootfs.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, wrote %+v", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*rootfs.Root){
		"another version":   func(r *rootfs.Root) { r.Version++ },
		"no layers":         func(r *rootfs.Root) { r.Layers = nil },
		"unknown ids":       func(r *rootfs.Root) { r.IDs = "some" },
		"relative layer":    func(r *rootfs.Root) { r.Layers[0] = "layers/x" },
		"layer with dots":   func(r *rootfs.Root) { r.Layers[0] = "/a/../b" },
		"layer with NUL":    func(r *rootfs.Root) { r.Layers[0] = "/a\x00b" },
		"relative target":   func(r *rootfs.Root) { r.Binds[0].Target = "usr" },
		"target outside":    func(r *rootfs.Root) { r.Binds[0].Target = "/../usr" },
		"the root as bind":  func(r *rootfs.Root) { r.Binds[0].Target = "/" },
		"no source of bind": func(r *rootfs.Root) { r.Binds[0].Source = "" },
	} {
		t.Run(name, func(t *testing.T) {
			r := valid()
			spoil(&r)
			b, _ := json.Marshal(r)
			if _, err := rootfs.Parse(b); err == nil {
				t.Errorf("accepted %s", b)
			}
		})
	}
	good, _ := json.Marshal(valid())
	for name, text := range map[string]string{
		"unknown field": strings.Replace(string(good), `"version"`, `"colour":1,"version"`, 1),
		"two values":    string(good) + string(good),
		"not JSON":      "root",
		"nothing":       "",
	} {
		if _, err := rootfs.Parse([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
