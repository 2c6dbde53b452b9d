package hostview

import (
	"io/fs"
	"net/netip"
)

// Kind says what the driver makes of an [Entry].
type Kind string

// The kinds of entries.
const (
	// KindDir is a folder of the sandbox's own, made with Mode. One below the
	// home belongs to the sandbox's user, any other to nobody inside.
	KindDir Kind = "dir"
	// KindFile is a generated file with Content and Mode.
	KindFile Kind = "file"
	// KindSymlink is a symbolic link whose text is Link.
	KindSymlink Kind = "symlink"
	// KindBind shows Source, a file or folder of the host, at Target.
	KindBind Kind = "bind"
	// KindMask covers Target, which lies below an earlier bind and exists
	// there, with something empty: a folder if IsDir, else a file.
	KindMask Kind = "mask"
	// KindHome is where the driver mounts the home layer, empty or named.
	KindHome Kind = "home"
	// KindWorkspace is where the driver mounts the workspace, whose real path
	// on the host is Source.
	KindWorkspace Kind = "workspace"
)

// Entry is one thing the sandbox sees. Entries of a [View] are in the order in
// which they can be made on an empty root: every parent folder that is not
// below a bind, the home or the workspace has an entry of its own, and comes
// first. A bind, mask or workspace below another one has its place to be
// mounted on in there already. The sandbox's own /proc, /sys, /dev and /tmp are
// the driver's to make, before any entry; entries may lie below /tmp.
type Entry struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"`           // absolute, clean, and free of links inside the sandbox
	Source string `json:"source,omitempty"` // bind, workspace: absolute path on the host, free of links when it was computed
	Link   string `json:"link,omitempty"`   // symlink: its text
	// Content and Mode are what a generated file or folder has.
	Content []byte      `json:"content,omitempty"`
	Mode    fs.FileMode `json:"mode,omitempty"`
	IsDir   bool        `json:"is_dir,omitempty"` // bind, mask: a folder, not a file
	// ReadOnly says that nothing may be written through this entry.
	ReadOnly bool `json:"read_only,omitempty"`
	// CopyOnWrite says that the folder looks writable, and that what is
	// written goes to a layer which is thrown away at the end.
	CopyOnWrite bool `json:"copy_on_write,omitempty"`
	// Why names the rule that put the entry here, for people.
	Why string `json:"why"`

	user bool // asked for by --mount
}

// Note tells a person about something that the view leaves out or changes.
type Note struct {
	Subject string `json:"subject"` // a path, a variable or a mount
	Text    string `json:"text"`    // what happened to it, and why
}

// View is what a sandbox at the process level sees.
type View struct {
	Entries []Entry  `json:"entries"`
	Env     []string `json:"env"` // NAME=VALUE, sorted by name
	Notes   []Note   `json:"notes"`
	// Home is the value of HOME inside. It may lead to the KindHome entry
	// through a link. There is no KindHome entry when the workspace holds the home.
	Home string `json:"home"`
	// HomeDir is where Home leads, free of links.
	HomeDir string `json:"home_dir"`
	// Workspace is the workspace's real path, inside and outside; empty for none.
	Workspace string `json:"workspace"`
}

// Input is what [Compute] works from.
type Input struct {
	// Root is put in front of every path that is looked at, so that a tree
	// other than the machine's own can be described. Empty means the machine.
	// Paths in the other fields and in the View never carry it.
	Root string
	// Home is the caller's home folder and BaileyHome Bailey's data folder,
	// which no sandbox may see. BaileyHome may be empty.
	Home, BaileyHome string
	// UID, GID and Username are the command's user as seen inside.
	UID, GID int
	Username string
	// Hostname is the name the sandbox gives itself; empty means "bailey".
	Hostname string
	// MachineID is 32 hexadecimal digits for /etc/machine-id; empty means a
	// random one. It must not be the host's.
	MachineID string
	// GitName and GitEmail, where given, become git's user inside.
	GitName, GitEmail string
	// NameServer is the address at which names are answered inside. The zero
	// Addr says that the sandbox has no network and nobody answers.
	NameServer netip.Addr
	// Env is the caller's environment, NAME=VALUE.
	Env []string
	// SetEnv holds the values of --env: NAME passes the caller's value,
	// NAME=VALUE sets one.
	SetEnv []string
	// Workspace is an existing folder; it is shown at its own path. Empty is none.
	Workspace string
	// Mounts are the values of --mount. Each is checked with [CheckMount].
	Mounts []Mount
	// IUnderstand is the owner's word for mounts that hand out the host.
	IUnderstand bool
}
