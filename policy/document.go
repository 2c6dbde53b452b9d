package policy

// document is a policy as it is written. Its fields are those of the form:
// read.go fills them, canonical.go writes them.
//
// A list that is there and empty is no nil slice: it allows nothing, while a
// list that is not there does not restrict.
type document struct {
	Version      int                  `json:"version"`
	Description  string               `json:"description,omitempty"`
	Mode         string               `json:"mode,omitempty"`
	AskTimeout   string               `json:"ask_timeout,omitempty"`
	MinIsolation string               `json:"min_isolation,omitempty"`
	Sealed       bool                 `json:"sealed,omitempty"`
	Paths        pathsDoc             `json:"paths,omitzero"`
	Mounts       []mountDoc           `json:"mounts,omitempty"`
	Env          envDoc               `json:"env,omitzero"`
	Limits       sandboxDoc           `json:"limits,omitzero"`
	Ports        []string             `json:"ports,omitempty"`
	Egress       egressDoc            `json:"egress,omitzero"`
	Secrets      map[string]secretDoc `json:"secrets,omitempty"`
}

type pathsDoc struct {
	AllowRead  []string `json:"allow_read,omitempty"`
	AllowWrite []string `json:"allow_write,omitempty"`
	DenyRead   []string `json:"deny_read,omitempty"`
	DenyWrite  []string `json:"deny_write,omitempty"`
}

type mountDoc struct {
	line   int
	Source string `json:"source"`
	Target string `json:"target,omitempty"`
	Write  bool   `json:"write,omitempty"`
}

type envDoc struct {
	Set  map[string]string `json:"set,omitempty"`
	Pass []string          `json:"pass,omitempty"`
}

type sandboxDoc struct {
	CPUs    string `json:"cpus,omitempty"`
	Memory  string `json:"memory,omitempty"`
	Pids    string `json:"pids,omitempty"`
	Disk    string `json:"disk,omitempty"`
	IO      string `json:"io,omitempty"`
	Output  string `json:"output,omitempty"`
	Timeout string `json:"timeout,omitempty"`
}

type egressDoc struct {
	Default string    `json:"default,omitempty"`
	Limits  limitsDoc `json:"limits,omitzero"`
	Rules   []ruleDoc `json:"rules,omitempty"`
}

type limitsDoc struct {
	Requests string `json:"requests,omitempty"`
	Upload   string `json:"upload,omitempty"`
	Leak     string `json:"leak,omitempty"`
}

type ruleDoc struct {
	line         int
	Name         string    `json:"name,omitempty"`
	Description  string    `json:"description,omitempty"`
	Action       string    `json:"action,omitempty"`
	Profile      string    `json:"profile,omitempty"`
	Hosts        []string  `json:"hosts,omitzero"`
	Addresses    []string  `json:"addresses,omitzero"`
	Ports        []string  `json:"ports,omitzero"`
	Protocol     string    `json:"protocol,omitempty"`
	Methods      []string  `json:"methods,omitzero"`
	Paths        []string  `json:"paths,omitzero"`
	Query        []string  `json:"query,omitzero"`
	When         string    `json:"when,omitempty"`
	TLS          string    `json:"tls,omitempty"`
	Secret       string    `json:"secret,omitempty"`
	Secrets      []string  `json:"secrets,omitzero"`
	PlainSecrets bool      `json:"plain_secrets,omitempty"`
	Pinned       bool      `json:"pinned,omitempty"`
	WebSocket    bool      `json:"websocket,omitempty"`
	Limits       limitsDoc `json:"limits,omitzero"`
	Internal     []string  `json:"internal,omitzero"`
}

type secretDoc struct {
	line   int
	Secret string   `json:"secret,omitempty"`
	Env    string   `json:"env,omitempty"`
	Hosts  []string `json:"hosts,omitzero"`
	In     []string `json:"in,omitzero"`
	Header string   `json:"header,omitempty"`
	Format string   `json:"format,omitempty"`
}
