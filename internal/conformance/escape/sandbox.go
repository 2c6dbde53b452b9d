//go:build linux

package escape

import (
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// describe writes down the sandbox of a run: the one that everybody gets at
// this level, with little in it. The attacker is its root, which is the
// strongest user it has.
func (f *field) describe() error {
	f.spec = driver.Spec{
		ID: "escape-" + f.nonce[len(f.nonce)-8:], Own: filepath.Join(f.dir, "own"), Level: f.mode.Level, Hostname: "inside", Workdir: f.ws,
		Env:  []string{"PATH=/usr/bin:/bin", "HOME=/root"},
		User: driver.User{HostUID: os.Geteuid(), HostGID: os.Getegid()},
	}
	places := []driver.Place{
		{Kind: driver.Bind, Source: f.suite.Attack, Target: f.suite.Attack, ReadOnly: true, HostIDs: true},
		{Kind: driver.Bind, Source: f.view, Target: f.view, IsDir: true, ReadOnly: true, HostIDs: true},
		{Kind: driver.Bind, Source: f.ws, Target: f.ws, IsDir: true, HostIDs: true},
	}
	if f.mode.Level == bailey.IsolationProcess {
		f.spec.Root.Places = append([]driver.Place{
			{Kind: driver.Bind, Source: "/usr", Target: "/usr", IsDir: true, ReadOnly: true, HostIDs: true},
			{Kind: driver.Symlink, Source: "usr/bin", Target: "/bin"},
			{Kind: driver.Symlink, Source: "usr/lib", Target: "/lib"},
			{Kind: driver.Symlink, Source: "usr/lib64", Target: "/lib64"},
			{Kind: driver.File, Target: "/etc/passwd", Content: []byte("root:x:0:0::/root:/bin/sh\n"), Mode: 0o644},
		}, places...)
		return nil
	}
	root, err := f.image()
	if err != nil {
		return err
	}
	layer, err := f.layer("layer")
	if err != nil {
		return err
	}
	usr, err := f.layer("usr-layer")
	if err != nil {
		return err
	}
	f.spec.Root.Base = &driver.Overlay{Lower: []string{root}, Layer: layer}
	f.spec.Root.Places = append([]driver.Place{
		{Kind: driver.CoW, Target: "/usr", Overlay: &driver.Overlay{Lower: []string{"/usr"}, Layer: usr}},
		{Kind: driver.File, Target: "/etc/hostname", Content: []byte("inside\n"), Mode: 0o644},
	}, places...)
	return nil
}

// image makes the root file system of a container.
func (f *field) image() (string, error) {
	root := filepath.Join(f.dir, "image")
	for _, d := range []string{"", "etc", "usr", "root", "tmp", "var", "dev", "proc", "sys"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			return "", err
		}
	}
	for name, text := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		if err := os.Symlink(text, filepath.Join(root, name)); err != nil {
			return "", err
		}
	}
	return root, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\n"), 0o644)
}

// layer makes the folders of an overlay's writable layer.
func (f *field) layer(name string) (string, error) {
	dir := filepath.Join(f.dir, name)
	for _, d := range []string{"", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// show adds something to what the sandbox sees.
func (f *field) show(p driver.Place) { f.spec.Root.Places = append(f.spec.Root.Places, p) }

// ordinary makes the attacker an ordinary user of the sandbox.
func (f *field) ordinary() { f.spec.User.UID, f.spec.User.GID = 1000, 1000 }
