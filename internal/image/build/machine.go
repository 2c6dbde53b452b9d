package build

import (
	"context"
	"io"
	"io/fs"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
)

// Machine runs steps in sandboxes, under the policy of the build.
type Machine interface {
	// Run runs one command in a sandbox of its own and returns when nothing of it
	// is left. The error says that it could not be run; how it ended is End.
	Run(ctx context.Context, s Step) (bailey.End, error)
	// Fetch writes what an http or https URL holds, as the policy allows.
	Fetch(ctx context.Context, url string, w io.Writer) error
}

// Step is one command to run.
type Step struct {
	Layers  []string // folders of the image store, lowest first; at least one
	Args    []string // the first is looked up in PATH, inside
	Env     []string // NAME=VALUE, all of it but what the way out adds
	Dir     string   // inside; it is there
	User    User
	Mounts  []Mount // parents before what lies below them
	Network bool    // false: no way out at all
	Output  io.Writer
	// Layer takes what the command wrote, as an uncompressed OCI layer, once it has
	// ended with status 0. made are paths at which the machine itself put something;
	// mounts need not be among them.
	Layer func(ctx context.Context, r io.Reader, made []string) error
}

// User is who runs a command, inside.
type User struct{ UID, GID int }

// MountKind says what a Mount shows.
type MountKind int

// The kinds of mounts.
const (
	Folder MountKind = iota // the host's folder or file Source, which belongs to the build alone
	File                    // a file with Content
	Secret                  // a file with the placeholder of the secret Source, which the gate replaces on the way out
)

// Mount is something that a step sees and that is in no layer.
type Mount struct {
	Kind     MountKind
	Target   string // absolute and clean; it is made where it is not there
	Source   string
	IsDir    bool
	ReadOnly bool
	Content  []byte
	Mode     fs.FileMode
	Owner    User   // of File and Secret
	Env      string // of Secret: the variable that has it, in place of the file at Target
}

// Hands do what touches bytes that nobody vouches for, in processes of their own.
type Hands interface {
	Layer(ctx context.Context, r io.Reader) (image.Layer, error)
	Unpack(ctx context.Context, r io.Reader, dir string) error
	Pull(ctx context.Context, ref string, each func(api.Progress)) (image.Pulled, error)
}
