package bailey

// Spec says what sandbox is wanted. The zero value is a sandbox over the
// current folder with safe limits.
type Spec struct {
	// Isolation is the level; IsolationAuto chooses. MinIsolation refuses what
	// is weaker.
	Isolation    Isolation `json:"isolation,omitempty"`
	MinIsolation Isolation `json:"min_isolation,omitempty"`
	// Image is a root file system of the sandbox's own: a folder, a tar or an OCI
	// image layout, as --image takes it. Template is one that Bailey has: "host",
	// made from this machine's own /usr, which is also what a container gets that
	// names neither. They exclude each other and need IsolationContainer, which
	// IsolationAuto then chooses.
	Image    string `json:"image,omitempty"`
	Template string `json:"template,omitempty"`
	// Workspace is the host folder to work on, seen copy-on-write at its own
	// path; "" is the process's working folder.
	Workspace string `json:"workspace,omitempty"`
	// Workdir is where commands start, inside; "" is the workspace.
	Workdir string `json:"workdir,omitempty"`
	// Env holds NAME=VALUE to set a variable, NAME to pass one on. Nothing
	// else of the caller's environment gets in but a short list of harmless ones.
	Env []string `json:"env,omitempty"`
	// Mounts are SRC[:DST][:ro|rw], as --mount takes them.
	Mounts []string `json:"mounts,omitempty"`
	Limits Limits   `json:"limits,omitzero"`
	// Allow, Profiles, Secrets and Policy say what it may reach, as the flags
	// --allow (HOST[:PORT]), --profile, --secret (NAME@HOST) and --policy (the path
	// of a document) do. With none of them there is no network.
	Allow    []string `json:"allow,omitempty"`
	Profiles []string `json:"profiles,omitempty"`
	Secrets  []string `json:"secrets,omitempty"`
	Policy   string   `json:"policy,omitempty"`
	// NestedSandboxes lets programs inside make namespaces of their own.
	NestedSandboxes bool `json:"nested_sandboxes,omitempty"`
	// IUnderstand allows a workspace or mount that hands over much of the machine.
	IUnderstand bool `json:"i_understand,omitempty"`
}

// Command is one command in a sandbox.
type Command struct {
	Args  []string `json:"args"`            // a name without a slash is looked up in PATH, inside
	Env   []string `json:"env,omitempty"`   // NAME=VALUE, on top of the sandbox's
	Dir   string   `json:"dir,omitempty"`   // "" is the sandbox's working folder
	Stdin []byte   `json:"stdin,omitempty"` // nil: the command reads end of file at once
}

// Result is what a command left.
type Result struct {
	Stdout, Stderr []byte // as written, NUL bytes included
	Truncated      bool   // there was more than the output limit
	End            End
	// Denials are what was refused to the sandbox on its way out since the
	// command began, by it or by another that ran meanwhile. One with the Reason
	// gate_lost says that nothing gets out any more.
	Denials []Denial
}

// Denial is one refused act. What the sandbox said is in it: show it as
// printable text only.
type Denial struct {
	What   string `json:"what"` // "GET https://example.com/x"
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"` // a stable code
	Why    string `json:"why"`
	Ask    string `json:"how_to_ask,omitempty"`
	Count  int64  `json:"count"` // how often it came
}
