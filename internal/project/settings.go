package project

import (
	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/hostview"
)

// FileName is the name of a project's file, in the workspace itself.
const FileName = "bailey.yaml"

// Settings are flags of a sandbox. The zero value of each field means that it
// was not given.
type Settings struct {
	Isolation, MinIsolation bailey.Isolation
	// Image is a root file system's path, Template the name of one. A file's
	// Image is absolute and in the workspace, by its name; see [Beneath].
	Image, Template string
	// Workdir is where the command starts, inside.
	Workdir string
	// Home names a persistent home.
	Home string
	// Mounts of a file have their source in the workspace, by its name; see
	// [Beneath].
	Mounts []hostview.Mount
	// Env holds NAME, which passes a variable of the host, and NAME=VALUE.
	Env    []string
	Limits bailey.Limits
	// Copy works on a full copy of the workspace.
	Copy bool
	// Allow, Profiles and Secrets (NAME@HOST) say what may be reached. Policy is
	// the document of a project that does; a person's own is not among Settings.
	Allow, Profiles, Secrets []string
	Policy                   *File

	// The rest is for a person alone to set. [Parse] never does, and [Merge]
	// takes nothing of it from a file.

	// PassEnv names the host's variables that a file may pass.
	PassEnv []string
	// Writable, Apply, Nested and IUnderstand are the flags of that name. OwnPolicy
	// is --policy, and Offline --net none.
	Writable    []string
	Apply       bool
	Nested      bool
	IUnderstand bool
	OwnPolicy   string
	Offline     bool
}

// Note tells a person what became of something in a project's file.
type Note struct {
	Field string `json:"field"` // its name in the file, or the file's
	Text  string `json:"text"`
	// Fine says that all is as the person expects, so that it is worth a line
	// only to who asks for more.
	Fine bool `json:"-"`
}
