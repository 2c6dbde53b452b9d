package rootfs

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// Version is the version of the description's form. A reader refuses any other.
const Version = 1

// Kind says what a root was made from.
type Kind string

// The kinds of source.
const (
	KindHost   Kind = "host"   // the built-in template over the host's own /usr
	KindFolder Kind = "folder" // a folder, used in place
	KindTar    Kind = "tar"    // a tar of a root file system
	KindOCI    Kind = "oci"    // an OCI image layout, folder or archive
	KindDocker Kind = "docker" // an archive as `docker save` writes it
)

// IDs says what the user and group ids of files in the layers mean.
type IDs string

// The ways ids are stored.
const (
	// IDsHost: files carry the ids they have inside the root (0 to 65535) as
	// their ids on disk. They must be shifted by an idmapped mount: a layer
	// mounted without one has files of the host's root in it.
	IDsHost IDs = "host"
	// IDsSingle: every file belongs to the user who prepared the root, whatever
	// the image says. The ids of the image are in the file "owners" beside the
	// layer's folder.
	IDsSingle IDs = "single"
)

// Root describes a prepared root file system. Everything it names is read-only
// and may be in use by many sandboxes at once.
type Root struct {
	Version int    `json:"version"`
	Kind    Kind   `json:"kind"`
	Source  string `json:"source"` // as it was asked for
	// Digest names the content: the manifest's digest (oci), the config's
	// (docker), that of the uncompressed tar (tar, host). It is empty for a
	// folder, which can change at any time.
	Digest string `json:"digest,omitempty"`
	// Layers are absolute paths of folders, lowest first: the order is the
	// reverse of overlayfs's lowerdir string. Whiteouts in them are character
	// devices 0:0; opaque folders carry trusted.overlay.opaque with IDsHost and
	// user.overlay.opaque with IDsSingle. A sandbox that uses a layer of the
	// store holds a shared flock on the folder that contains it.
	Layers []string `json:"layers"`
	// Binds are host folders that are seen at a path of the root on top of
	// Layers, as lower layers too: a sandbox that writes below Target writes
	// into its own layer. Parents come before what lies below them. Their files
	// carry the host's ids whatever IDs says.
	Binds  []Bind   `json:"binds,omitempty"`
	Config Config   `json:"config"`
	IDs    IDs      `json:"ids"`
	Reused bool     `json:"reused"`          // everything was there already
	Notes  []string `json:"notes,omitempty"` // what was left out or changed, for people
}

// Bind says that the host folder Source is seen, read-only from the host's
// side, at Target inside the root. Both are absolute and clean.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Config is what an image says about how its programs want to be run. All of
// it is the image maker's word: a path in it is to be resolved inside the root.
type Config struct {
	Env        []string          `json:"env,omitempty"`  // NAME=value
	User       string            `json:"user,omitempty"` // user[:group], names or numbers; empty is root
	Workdir    string            `json:"workdir,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	StopSignal string            `json:"stop_signal,omitempty"`
}

// Parse reads one description and checks what a mounter relies on: version,
// absolute clean paths, known ids. Unknown fields are errors.
func Parse(b []byte) (Root, error) {
	var r Root
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Root{}, fmt.Errorf("root description: %w", err)
	}
	if d.More() {
		return Root{}, fmt.Errorf("root description: more than one value")
	}
	return r, r.Check()
}

// Check reports the first thing in r that a mounter could not rely on.
func (r Root) Check() error {
	if r.Version != Version {
		return fmt.Errorf("root description: version %d, this program reads %d", r.Version, Version)
	}
	if len(r.Layers) == 0 {
		return fmt.Errorf("root description: no layers")
	}
	if r.IDs != IDsHost && r.IDs != IDsSingle {
		return fmt.Errorf("root description: unknown ids %q", r.IDs)
	}
	paths := append([]string(nil), r.Layers...)
	for _, b := range r.Binds {
		if b.Target == "/" {
			return fmt.Errorf("root description: a bind over the whole root")
		}
		paths = append(paths, b.Source, b.Target)
	}
	for _, p := range paths {
		if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
			return fmt.Errorf("root description: %q is not an absolute, clean path", p)
		}
	}
	return nil
}
