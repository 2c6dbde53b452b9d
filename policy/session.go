package policy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAskTimeout is how long a request can be held at most.
const maxAskTimeout = 24 * time.Hour

// Session is what a document says of the sandbox itself. Zero values say
// nothing; what is not said is as without a policy.
type Session struct {
	Description string        `json:"description,omitempty"` // for the model
	AskTimeout  time.Duration `json:"ask_timeout,omitempty"` // nanoseconds that a question waits for a person
	// MinIsolation is the weakest level that will do, as --min-isolation.
	MinIsolation string `json:"min_isolation,omitempty"`
	// Paths say which of the host's files the sandbox may see and change.
	Paths  PathRules     `json:"paths,omitzero"`
	Mounts []Mount       `json:"mounts,omitempty"`
	Env    Env           `json:"env,omitzero"`
	Limits SandboxLimits `json:"limits,omitzero"`
	// Ports of the sandbox may be reached from outside.
	Ports []uint16 `json:"ports,omitempty"`
}

// Mount shows a folder or file of the host inside.
type Mount struct {
	Source string `json:"source"` // absolute, or below the workspace
	Target string `json:"target"` // absolute
	Write  bool   `json:"write,omitempty"`
}

// Env are the variables that the sandbox gets beside Bailey's own.
type Env struct {
	Set  map[string]string `json:"set,omitempty"`
	Pass []string          `json:"pass,omitempty"` // of the caller's, by name
}

// SandboxLimits bound what the sandbox uses; 0 is not said.
type SandboxLimits struct {
	CPUs    float64       `json:"cpus,omitempty"`
	Memory  int64         `json:"memory,omitempty"` // bytes
	Pids    int64         `json:"pids,omitempty"`
	Disk    int64         `json:"disk,omitempty"`    // bytes
	IO      int64         `json:"io,omitempty"`      // bytes a second
	Output  int64         `json:"output,omitempty"`  // bytes
	Timeout time.Duration `json:"timeout,omitempty"` // nanoseconds
}

// levels are the isolation levels, weakest first.
var levels = []string{"interpreter", "process", "container", "gvisor", "microvm", "machine"}

func compileSession(d *document) (Session, error) {
	s := Session{Description: d.Description, MinIsolation: d.MinIsolation}
	var err error
	if d.AskTimeout != "" {
		if s.AskTimeout, err = parseDuration(d.AskTimeout, maxAskTimeout); err != nil {
			return s, &Error{At: "ask_timeout", Why: err.Error(), Fix: "write 30s or 5m"}
		}
	}
	if s.MinIsolation != "" && !slices.Contains(levels, s.MinIsolation) {
		return s, &Error{At: "min_isolation", Why: "there is no level " + strconv.Quote(s.MinIsolation), Fix: "there are " + strings.Join(levels, ", ")}
	}
	if s.Paths, err = d.Paths.compile(); err != nil {
		return s, err
	}
	targets := map[string]bool{}
	for i, m := range d.Mounts {
		at := fmt.Sprintf("mounts[%d]", i)
		out, err := m.compile(at)
		if err != nil {
			return s, err
		}
		if targets[out.Target] {
			return s, &Error{m.line, at, "something is mounted at " + out.Target + " already", "choose another target"}
		}
		targets[out.Target] = true
		s.Mounts = append(s.Mounts, out)
	}
	if err := d.Env.check(); err != nil {
		return s, err
	}
	s.Env = Env{maps.Clone(d.Env.Set), slices.Clone(d.Env.Pass)}
	for i, text := range d.Ports {
		n, err := parsePort(text)
		if err != nil {
			return s, &Error{At: fmt.Sprintf("ports[%d]", i), Why: err.Error()}
		}
		s.Ports = append(s.Ports, n)
	}
	s.Limits, err = d.Limits.compile()
	return s, err
}

func (m mountDoc) compile(at string) (Mount, error) {
	fail := func(field, why, fix string) (Mount, error) {
		return Mount{}, &Error{m.line, join(at, field), why, fix}
	}
	source := strings.TrimPrefix(m.Source, "./")
	switch {
	case source == "":
		return fail("source", "it is not said what is mounted", "name a folder or file")
	case path.Clean(source) != source || source == ".." || strings.HasPrefix(source, "../") || strings.ContainsRune(source, 0):
		return fail("source", strconv.Quote(m.Source)+" is no plain path", "write it without .., double slashes and a slash at the end")
	}
	target := m.Target
	if target == "" {
		target = source
	}
	if !absolute(target) || target == "/" {
		return fail("target", strconv.Quote(target)+" is no absolute, plain path below /", "say where it appears inside")
	}
	return Mount{source, target, m.Write}, nil
}

func (d envDoc) check() error {
	for _, name := range slices.Sorted(maps.Keys(d.Set)) {
		if !isVariable(name) || strings.ContainsRune(d.Set[name], 0) {
			return &Error{At: "env.set." + name, Why: "it is no name of a variable, or its value has a NUL", Fix: "use letters, digits and underscores"}
		}
	}
	for i, name := range d.Pass {
		if !isVariable(name) {
			return &Error{At: fmt.Sprintf("env.pass[%d]", i), Why: strconv.Quote(name) + " is no name of a variable", Fix: "values go under set"}
		}
		if _, both := d.Set[name]; both {
			return &Error{At: fmt.Sprintf("env.pass[%d]", i), Why: name + " is set as well", Fix: "keep one of the two"}
		}
	}
	return nil
}

func (d sandboxDoc) compile() (SandboxLimits, error) {
	var l SandboxLimits
	for _, f := range []struct {
		name, text string
		to         *int64
		size       bool
	}{
		{"memory", d.Memory, &l.Memory, true}, {"pids", d.Pids, &l.Pids, false}, {"disk", d.Disk, &l.Disk, true},
		{"io", d.IO, &l.IO, true}, {"output", d.Output, &l.Output, true},
	} {
		if f.text == "" {
			continue
		}
		n, err := parseSize(f.text, f.size)
		if err != nil {
			return l, &Error{At: "limits." + f.name, Why: err.Error(), Fix: "write a whole number, or 512M"}
		}
		*f.to = n
	}
	if d.CPUs != "" {
		n, err := strconv.ParseFloat(d.CPUs, 64)
		if err != nil || !(n > 0 && n <= 4096) {
			return l, &Error{At: "limits.cpus", Why: strconv.Quote(d.CPUs) + " is no number of processors", Fix: "write 2 or 1.5"}
		}
		l.CPUs = n
	}
	if d.Timeout != "" {
		n, err := parseDuration(d.Timeout, 366*24*time.Hour)
		if err != nil {
			return l, &Error{At: "limits.timeout", Why: err.Error(), Fix: "write 90s or 1h30m"}
		}
		l.Timeout = n
	}
	return l, nil
}

func parseDuration(s string, most time.Duration) (time.Duration, error) {
	n, err := time.ParseDuration(s)
	if err != nil || n <= 0 || n > most {
		return 0, fmt.Errorf("%q is no time above 0 and up to %s", s, most)
	}
	return n, nil
}
