package api

import (
	"encoding/json"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Template is a prepared root file system with a way to start.
type Template struct {
	Name    string        `json:"name"`  // with tag: NAME:TAG
	State   string        `json:"state"` // building, ready, failed
	Digest  string        `json:"digest,omitempty"`
	Created time.Time     `json:"created"`
	Size    int64         `json:"size,omitempty"`
	Start   []string      `json:"start,omitempty"` // the start command
	Ready   []string      `json:"ready,omitempty"` // exits 0 when it is up
	Env     []string      `json:"env,omitempty"`
	Workdir string        `json:"workdir,omitempty"`
	User    string        `json:"user,omitempty"`
	Warm    int           `json:"warm,omitempty"` // sandboxes kept ready
	Error   *bailey.Error `json:"error,omitempty"`
	Refs    int           `json:"refs"`
}

// BuildSpec asks for a template to be built. The context is the request's body.
type BuildSpec struct {
	Name       string            `json:"name"`
	Dockerfile string            `json:"dockerfile,omitempty"` // path in the context; default Dockerfile
	Target     string            `json:"target,omitempty"`
	Args       map[string]string `json:"args,omitempty"`
	Secrets    []string          `json:"secrets,omitempty"` // names of the store, for RUN --mount=type=secret
	NoCache    bool              `json:"no_cache,omitempty"`
	Start      []string          `json:"start,omitempty"`
	Ready      []string          `json:"ready,omitempty"`
	Tags       []string          `json:"tags,omitempty"` // more names that it gets: NAME or NAME:TAG
	Warm       int               `json:"warm,omitempty"`
	Policy     json.RawMessage   `json:"policy,omitempty"` // what steps may reach: a policy document, as an object or as text
	Allow      []string          `json:"allow,omitempty"`
	Profiles   []string          `json:"profiles,omitempty"`
}

// Image is an image of the store.
type Image struct {
	Ref     string    `json:"ref"`
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"`
	Layers  int       `json:"layers"`
	Created time.Time `json:"created"`
	Refs    int       `json:"refs"`
}

// Progress is an event of a pull or a build.
type Progress struct {
	Step  string        `json:"step"`
	Done  int64         `json:"done,omitempty"`
	Total int64         `json:"total,omitempty"`
	Log   string        `json:"log,omitempty"`
	Error *bailey.Error `json:"error,omitempty"`
	Image *Image        `json:"image,omitempty"`    // the last event of a pull
	Built *Template     `json:"template,omitempty"` // the last event of a build
}

// Volume is named storage that outlives sandboxes.
type Volume struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Size    int64     `json:"size,omitempty"`  // used
	Limit   int64     `json:"limit,omitempty"` // bytes, 0 none
	Users   []string  `json:"users,omitempty"` // sandboxes that have it
}

// Key is an API key, without its secret part.
type Key struct {
	Name    string     `json:"name"`
	Scopes  []string   `json:"scopes"` // read, exec, write, admin
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"`
	Quota   Quota      `json:"quota,omitzero"`
	Rate    float64    `json:"rate,omitempty"`  // requests a second, 0: the default
	Token   string     `json:"token,omitempty"` // only in the answer to its making
	// E2B is the token as clients that were written for E2B take it; there, too.
	E2B string `json:"e2b,omitempty"`
}

// Quota bounds what an owner, or all, may have at once. 0 is no bound.
type Quota struct {
	Sandboxes int     `json:"sandboxes,omitempty"` // not stopped or ended
	Running   int     `json:"running,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	Memory    int64   `json:"memory,omitempty"`
	Disk      int64   `json:"disk,omitempty"`
	// MaxTimeout is the most that a sandbox may live; more is an error that names it.
	MaxTimeout Duration `json:"max_timeout,omitempty"`
}

// Webhook is told of events.
type Webhook struct {
	ID     string   `json:"id"`
	URL    string   `json:"url"`
	Kinds  []string `json:"kinds,omitempty"`  // none: all
	Secret string   `json:"secret,omitempty"` // signs bodies (HMAC-SHA256); only in its making
	Failed int64    `json:"failed,omitempty"`
}

// Orphan is something on the host that belongs to no living owner.
type Orphan struct {
	Kind   string `json:"kind"` // sandbox, cgroup, mount, layer, folder, namespace …
	Name   string `json:"name"`
	Why    string `json:"why"`
	Action string `json:"action"` // what gc does about it
	Bytes  int64  `json:"bytes,omitempty"`
	Done   bool   `json:"done,omitempty"`
}

// Info is what the daemon says about itself.
type Info struct {
	Version   string    `json:"version"`
	API       string    `json:"api"` // v1
	Started   time.Time `json:"started"`
	Home      string    `json:"home,omitempty"`
	Sandboxes int       `json:"sandboxes"`
	Levels    []Level   `json:"levels"`
	Domain    string    `json:"domain,omitempty"` // of exposed ports
	Warm      []Warm    `json:"warm,omitempty"`   // what is kept ready
}

// Warm is how many sandboxes of a template and a level are kept ready for whoever
// asks for one.
type Warm struct {
	Template  string           `json:"template"`
	Isolation bailey.Isolation `json:"isolation"`
	Network   bool             `json:"network,omitempty"` // with a way out
	Wanted    int              `json:"wanted"`
	Ready     int              `json:"ready"`
}

// Level is an isolation level on this host.
type Level struct {
	Isolation bailey.Isolation `json:"isolation"`
	Available bool             `json:"available"`
	Why       string           `json:"why,omitempty"`
	Fix       string           `json:"fix,omitempty"`
}
