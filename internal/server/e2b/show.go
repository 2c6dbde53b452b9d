package e2b

import (
	"runtime"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// envdVersion says what clients may expect inside: from 0.6.2 on they would send
// metadata of files, which Bailey has not, and are told so by themselves.
const envdVersion = "0.6.1"

// handle is what a client needs to speak with a sandbox.
type handle struct {
	Sandbox  string  `json:"sandboxID"`
	Template string  `json:"templateID"`
	Client   string  `json:"clientID"` // of old, and has to be there
	Envd     string  `json:"envdVersion"`
	Token    string  `json:"envdAccessToken"`
	Domain   *string `json:"domain"`
	Alias    string  `json:"alias,omitempty"`
}

func (s *Server) handle(b api.Sandbox) handle {
	return handle{Sandbox: b.ID, Template: templateOf(b), Client: "bailey", Envd: envdVersion, Token: s.token(b.ID), Domain: s.domain(), Alias: templateOf(b)}
}

// domain is below which clients find sandboxes, nil where that is nowhere.
func (s *Server) domain() *string {
	if s.opt.Reached == nil {
		return nil
	}
	if d := s.opt.Reached(); d != "" {
		return &d
	}
	return nil
}

func templateOf(b api.Sandbox) string {
	if t := b.Labels[templateLabel]; t != "" {
		return t
	}
	if b.Template != "" {
		return b.Template
	}
	return "base"
}

// listed is a sandbox in a list.
type listed struct {
	Sandbox  string            `json:"sandboxID"`
	Template string            `json:"templateID"`
	Client   string            `json:"clientID"`
	Alias    string            `json:"alias,omitempty"`
	CPUs     int               `json:"cpuCount"`
	Memory   int64             `json:"memoryMB"`
	Disk     int64             `json:"diskSizeMB"`
	Metadata map[string]string `json:"metadata"`
	Started  time.Time         `json:"startedAt"`
	Ends     time.Time         `json:"endAt"`
	State    string            `json:"state"`
	Envd     string            `json:"envdVersion"`
}

// farAway is when a sandbox ends that does not end by itself.
const farAway = 100 * 365 * 24 * time.Hour

func (s *Server) listed(b api.Sandbox) listed {
	l := listed{Sandbox: b.ID, Template: templateOf(b), Client: "bailey", Alias: templateOf(b), CPUs: cpus(b), Memory: b.Limits.Memory >> 20, Disk: b.Limits.Disk >> 20,
		Metadata: metadata(b.Labels), Started: b.Created, Envd: envdVersion, State: stateOf(b)}
	if l.Disk == 0 {
		l.Disk = bailey.DefaultLimits.Disk >> 20
	}
	switch {
	case b.Expires != nil:
		l.Ends = *b.Expires
	case b.Timeout.Never || b.Timeout.After == 0:
		l.Ends = b.Created.Add(farAway)
	default: // it sleeps, and its time begins anew when it is woken
		l.Ends = time.Now().UTC().Add(time.Duration(b.Timeout.After))
	}
	return l
}

func cpus(b api.Sandbox) int {
	if n := int(b.Limits.CPUs + 0.999); n > 0 {
		return n
	}
	return runtime.NumCPU()
}

// detail is all that is told about a sandbox.
type detail struct {
	listed
	Domain    *string   `json:"domain"`
	Token     string    `json:"envdAccessToken"`
	Internet  *bool     `json:"allowInternetAccess"`
	Lifecycle lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

func (s *Server) detail(b api.Sandbox) detail {
	d := detail{listed: s.listed(b), Domain: s.domain(), Token: s.token(b.ID), Lifecycle: lifecycle{OnTimeout: "kill", AutoResume: b.Labels[resumeLabel] != ""}}
	if b.Labels[pauseLabel] != "" {
		d.Lifecycle.OnTimeout = "pause"
	}
	if b.Labels[networkLabel] == "none" {
		no := false
		d.Internet = &no
	}
	return d
}

// stateOf gives running, paused, or "" for a sandbox that is not there for clients.
func stateOf(b api.Sandbox) string {
	switch b.State {
	case api.StateRunning, api.StateResuming, api.StatePausing:
		return "running"
	case api.StatePaused, api.StateStopped, api.StateStopping:
		return "paused"
	}
	return ""
}
