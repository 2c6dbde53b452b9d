package driver

import "io/fs"

// Root describes the files a sandbox sees: a base, and places on top of it.
type Root struct {
	// Base is the root file system. With nil the root is an empty read-only
	// folder that holds nothing but the Places.
	Base *Overlay
	// Places are made in order; a place may lie below an earlier one. What is
	// needed to reach a Target is created where the sandbox owns the ground.
	Places []Place
}

// Overlay is a writable view over read-only folders.
type Overlay struct {
	// Lower are folders of the host, lowest first.
	Lower []string
	// Layer is a folder that holds two folders, upper and work, on a file system
	// that can carry a layer. What is written ends in upper, which may have what an
	// earlier sandbox wrote; work must be empty each time. With "" it is written to
	// memory, up to a bound, and is gone with the sandbox.
	Layer string
	// Root says that this is a root file system with the places that come later as
	// its content: what they are mounted on is shown as if the lowest folder had it,
	// so that none of it is written to the layer. It is for a CoW place of a cell.
	Root bool
	// HostIDs says that files in Lower belong to the host's own users and are
	// seen by the sandbox as Spec.User maps them; otherwise they carry the
	// sandbox's ids 0 to 65535.
	HostIDs bool
}

// PlaceKind says what a Place is.
type PlaceKind int

// The kinds of places.
const (
	Dir     PlaceKind = iota // an empty folder
	File                     // a small file with Content
	Symlink                  // a link whose text is Source
	Bind                     // the host's file or folder Source
	CoW                      // a folder through Overlay
	Mask                     // something empty over what is there
	Scratch                  // a folder of the sandbox's own, kept at Source on the host
)

// Place is one thing at one path of a sandbox's root.
type Place struct {
	Kind    PlaceKind
	Target  string // absolute and clean
	Source  string
	Content []byte
	Mode    fs.FileMode
	IsDir   bool // Bind, Mask: a folder
	// Owned gives a Dir, File or Symlink to the sandbox's user.
	Owned    bool
	ReadOnly bool // Bind, Scratch
	Overlay  *Overlay
	// HostIDs: see Overlay.HostIDs; for Bind and Scratch.
	HostIDs bool
}
