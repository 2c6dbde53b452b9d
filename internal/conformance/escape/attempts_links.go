//go:build linux

package escape

import (
	"context"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// filled: something has been made in the folder of the host that arrange has
// left in the slot "folder".
func filled(f *field, m *message) bool {
	if m != nil {
		return false
	}
	list, _ := os.ReadDir(f.slots["folder"].(string))
	return len(list) > 0
}

// linkAttempts are about links that an earlier sandbox, or an image, has left
// where the driver makes or mounts something.
func linkAttempts() []Attempt {
	safe := []Wall{linux.NoSafeTargets}
	const made = "something is made in a folder of the host"
	// home shows a persistent home with a link in it that leads to a folder of
	// the host, and adds a place behind the link.
	home := func(name, tries string, place func(f *field, under string) driver.Place) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: made, Walls: safe, refused: true, landed: filled,
			arrange: func(f *field) error {
				host, own := filepath.Join(f.home, "host"), filepath.Join(f.dir, "own-home")
				f.slots["folder"] = host
				if err := f.folder(host); err != nil {
					return err
				}
				if err := f.folder(own); err != nil {
					return err
				}
				if err := os.Symlink(host, filepath.Join(own, ".config")); err != nil {
					return err
				}
				f.show(driver.Place{Kind: driver.Scratch, Source: own, Target: "/inside-home", IsDir: true, HostIDs: true})
				f.show(place(f, "/inside-home/.config"))
				return f.attack("hold")
			}}
	}
	image := func(name, tries, folder string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: made, Walls: safe, refused: true, landed: filled,
			Only: bailey.IsolationContainer, Why: "the process level has no image",
			arrange: func(f *field) error {
				host := filepath.Join(f.home, "host")
				f.slots["folder"] = host
				if err := f.folder(host); err != nil {
					return err
				}
				p := filepath.Join(f.dir, "image", folder)
				if err := os.RemoveAll(p); err != nil {
					return err
				}
				f.attack("hold")
				return os.Symlink(host, p)
			}}
	}
	return []Attempt{
		home("home-link-mount", "leave a link in a persistent home where the next run mounts a tool", func(f *field, under string) driver.Place {
			return driver.Place{Kind: driver.Bind, Source: f.view, Target: under + "/tool/bin", IsDir: true, ReadOnly: true, HostIDs: true}
		}),
		home("home-link-file", "leave a link in a persistent home where the next run writes a file", func(f *field, under string) driver.Place {
			return driver.Place{Kind: driver.File, Target: under + "/settings", Content: []byte("x"), Mode: 0o644, Owned: true}
		}),
		home("home-link-folder", "leave a link in a persistent home where the next run makes a folder", func(f *field, under string) driver.Place {
			return driver.Place{Kind: driver.Dir, Target: under + "/cache", Mode: 0o755, Owned: true}
		}),
		home("home-link-link", "leave a link in a persistent home where the next run makes a link", func(f *field, under string) driver.Place {
			return driver.Place{Kind: driver.Symlink, Target: under + "/link", Source: "/etc", Owned: true}
		}),
		image("image-link-etc", "bring an image whose /etc leads to the host", "etc"),
		image("image-link-sys", "bring an image whose /sys leads to the host", "sys"),
		{Name: "source-link", Tries: "put a link where the next run mounts a folder of the workspace", Seen: "the secret arrives", Walls: safe, refused: true, landed: gotNonce,
			arrange: func(f *field) error {
				if _, err := f.secret(); err != nil {
					return err
				}
				sub := filepath.Join(f.ws, "sub")
				if err := os.Symlink(filepath.Join(f.home, ".ssh"), sub); err != nil {
					return err
				}
				f.show(driver.Place{Kind: driver.Bind, Source: sub, Target: "/shown", IsDir: true, HostIDs: true})
				return f.attack("read", "/shown/id_ed25519")
			}},
		{Name: "layer-link", Tries: "put a link where the next run shows a folder copy-on-write", Seen: "the secret arrives", Walls: safe, refused: true, landed: gotNonce,
			arrange: func(f *field) error {
				if _, err := f.secret(); err != nil {
					return err
				}
				sub := filepath.Join(f.ws, "sub")
				if err := os.Symlink(filepath.Join(f.home, ".ssh"), sub); err != nil {
					return err
				}
				layer, err := f.layer("sub-layer")
				f.show(driver.Place{Kind: driver.CoW, Target: "/shown", Overlay: &driver.Overlay{Lower: []string{sub}, Layer: layer, HostIDs: true}})
				f.attack("read", "/shown/id_ed25519")
				return err
			}},
		swapAttempt(),
	}
}

// swapRounds is how many sandboxes are made while a name changes between a folder
// and a link. Without the wall a few suffice.
const swapRounds = 60

// swapAttempt is a race: while one sandbox exchanges a folder of its home with
// a link to the host, others are made over the same home.
func swapAttempt() Attempt {
	return Attempt{Name: "swap-race", Tries: "exchange a folder and a link in a persistent home while the next runs mount there", Seen: "something is made in a folder of the host",
		Walls: []Wall{linux.NoSafeTargets}, landed: func(f *field, m *message) bool {
			if m == nil || m.text != "swapping" {
				return filled(f, m)
			}
			// The attacker swaps as long as it has no answer.
			d := linux.New(linux.Options{State: f.suite.State, Omit: f.driverOmits()})
			for range swapRounds {
				spec, err := f.next()
				if err != nil {
					return false
				}
				in, err := d.Create(context.Background(), spec)
				if err == nil {
					in.Destroy(context.Background())
				}
				if filled(f, nil) {
					return true
				}
			}
			return false
		},
		arrange: func(f *field) error {
			host := filepath.Join(f.home, "host")
			f.slots["folder"] = host
			if err := f.folder(host); err != nil {
				return err
			}
			a, b := filepath.Join(f.ws, "a"), filepath.Join(f.ws, "b")
			if err := f.folder(a); err != nil {
				return err
			}
			if err := os.Symlink(host, b); err != nil {
				return err
			}
			return f.attack("swap", a, b)
		}}
}

// next describes one more sandbox over the same home, which mounts something
// below the name that is being exchanged.
func (f *field) next() (driver.Spec, error) {
	n, _ := f.slots["rounds"].(int)
	f.slots["rounds"] = n + 1
	spec := f.spec
	spec.ID += "-" + itoa(n)
	spec.Workdir = "/"
	spec.Entry = driver.Entry{Command: []string{"/bin/true"}}
	spec.Root.Places = nil
	for _, p := range f.spec.Root.Places {
		if p.Kind == driver.CoW { // every sandbox has layers of its own
			layer, err := f.layer("next-usr-" + itoa(n))
			if err != nil {
				return spec, err
			}
			p.Overlay = &driver.Overlay{Lower: p.Overlay.Lower, Layer: layer}
		}
		spec.Root.Places = append(spec.Root.Places, p)
	}
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Bind, Source: f.view, Target: filepath.Join(f.ws, "a", "tool", "bin"), IsDir: true, ReadOnly: true, HostIDs: true})
	if b := f.spec.Root.Base; b != nil {
		layer, err := f.layer("next-" + itoa(n))
		if err != nil {
			return spec, err
		}
		spec.Root.Base = &driver.Overlay{Lower: b.Lower, Layer: layer}
	}
	return spec, nil
}
