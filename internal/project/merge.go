package project

import (
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/hostview"
)

// Merge gives the settings of a sandbox from a person's flags and a project's
// file. It is a pure function, and the file never widens: for every field but
// those of the network, the result allows at most what the person's settings,
// with Bailey's defaults where they say nothing, allow without a file. What may
// be reached is what the person who trusted the file has read there. workspace is the real path of
// the folder the file lies in. What the file asked for and did not get is noted.
//
//	isolation, min-isolation   the stronger one
//	image, template            the person's; the file's if the person named neither
//	workdir, home              the person's; the file's if the person named none
//	limits                     the smaller one
//	mounts                     both; of the file, only read-only ones from the workspace
//	env                        both; the person's value wins; the file may set values,
//	                           and pass variables of the host that PassEnv names
//	copy                       yes if either says so
//	allow, profiles, secrets   both, unless the person wants no network
//	policy                     the person's; the file's if the person named none
//	everything else            the person's
//
// It fails with the code usage if both together make no sense.
func Merge(user, file Settings, defaults bailey.Limits, workspace string) (Settings, []Note, error) {
	m := &merger{out: user, user: user, file: file, workspace: workspace}
	m.out.Mounts, m.out.Env = slices.Clone(user.Mounts), slices.Clone(user.Env)
	m.root()
	m.isolation()
	m.limits(defaults)
	m.mounts()
	m.env()
	m.network()
	if file.Workdir != "" {
		switch {
		case user.Workdir != "":
			m.note("workdir", "yours is used")
		case !within(file.Workdir, workspace):
			m.note("workdir", "ignored: it is not in the workspace")
		default:
			m.out.Workdir = file.Workdir
		}
	}
	if file.Home != "" {
		if user.Home != "" {
			m.note("home", "yours is used")
		} else {
			m.out.Home = fileHome + file.Home
		}
	}
	m.out.Copy = user.Copy || file.Copy
	if m.out.MinIsolation > bailey.IsolationAuto && m.out.Isolation > bailey.IsolationAuto && m.out.Isolation < m.out.MinIsolation {
		return Settings{}, nil, bailey.Errorf(bailey.CodeUsage, "combine your flags with "+FileName, "change one of the two",
			"isolation %s is weaker than the least that is admitted, %s", m.out.Isolation, m.out.MinIsolation)
	}
	return m.out, m.notes, nil
}

// network adds what the file wants to reach.
func (m *merger) network() {
	u, f := m.user, m.file
	m.out.Allow, m.out.Profiles, m.out.Secrets = slices.Clone(u.Allow), slices.Clone(u.Profiles), slices.Clone(u.Secrets)
	if u.Offline {
		if len(f.Allow)+len(f.Profiles)+len(f.Secrets) > 0 || f.Policy != nil {
			m.note("network", "ignored: you want none")
		}
		return
	}
	m.out.Allow = both(m.out.Allow, f.Allow)
	m.out.Profiles = both(m.out.Profiles, f.Profiles)
	m.out.Secrets = both(m.out.Secrets, f.Secrets)
	switch {
	case f.Policy == nil:
	case u.OwnPolicy != "":
		m.note("policy", "yours is used")
	default:
		m.out.Policy = f.Policy
	}
}

// both gives own and what of more is not in it.
func both(own, more []string) []string {
	for _, s := range more {
		if !slices.Contains(own, s) {
			own = append(own, s)
		}
	}
	return own
}

type merger struct {
	out, user, file Settings
	workspace       string
	notes           []Note
}

func (m *merger) note(field, text string) { m.notes = append(m.notes, Note{Field: field, Text: text}) }

// root chooses the root file system.
func (m *merger) root() {
	if m.file.Image == "" && m.file.Template == "" {
		return
	}
	field := "image"
	if m.file.Image == "" {
		field = "template"
	}
	switch {
	case m.user.Image != "" || m.user.Template != "":
		m.note(field, "yours is used")
	case rootless(max(m.user.Isolation, m.file.Isolation)):
		m.note(field, "ignored: the level "+max(m.user.Isolation, m.file.Isolation).String()+" was asked for, which has no root file system of its own")
	case m.file.Image != "" && !within(m.file.Image, m.workspace):
		m.note(field, "ignored: it is not in the workspace")
	default:
		m.out.Image, m.out.Template = m.file.Image, m.file.Template
	}
}

// rootless says whether a level that was asked for has no root file system of
// its own.
func rootless(l bailey.Isolation) bool {
	return l > bailey.IsolationAuto && !l.OwnRoot()
}

// isolation takes the stronger level. A person who named none gets at least
// what a run over the host's tools, or over the person's root, gets by itself.
func (m *merger) isolation() {
	own := m.user.Isolation
	if own == bailey.IsolationAuto {
		own = bailey.IsolationProcess
		if m.user.Image != "" || m.user.Template != "" {
			own = bailey.IsolationContainer
		}
		own = max(own, m.user.MinIsolation)
	}
	switch f := m.file.Isolation; {
	case f == bailey.IsolationAuto:
	case f > own || f == own && m.out.Image == "" && m.out.Template == "":
		m.out.Isolation = f
	case f < own:
		m.note("isolation", "ignored: "+f.String()+" is weaker than "+own.String())
	}
	m.out.MinIsolation = max(m.user.MinIsolation, m.file.MinIsolation)
	if m.file.MinIsolation > bailey.IsolationAuto && m.file.MinIsolation < m.user.MinIsolation {
		m.note("min-isolation", "ignored: yours is stronger")
	}
}

// limits takes the smaller of each. Where the person named none, Bailey's
// default is the person's.
func (m *merger) limits(defaults bailey.Limits) {
	out, file := &m.out.Limits, m.file.Limits
	smaller(m, "cpus", &out.CPUs, file.CPUs, defaults.CPUs)
	smaller(m, "memory", &out.Memory, file.Memory, defaults.Memory)
	smaller(m, "pids", &out.Pids, file.Pids, defaults.Pids)
	smaller(m, "disk", &out.Disk, file.Disk, defaults.Disk)
	smaller(m, "io", &out.IO, file.IO, defaults.IO)
	smaller(m, "output", &out.Output, file.Output, defaults.Output)
	smaller(m, "timeout", &out.Timeout, file.Timeout, defaults.Timeout)
}

// smaller lowers *out to file, if that is lower than *out and than what holds
// when *out is not given. Zero is "not given", and no bound.
func smaller[T interface{ ~int64 | ~float64 }](m *merger, field string, out *T, file, byDefault T) {
	if !(file > 0) { // also for a number that is none
		return
	}
	bound := *out
	if bound == 0 {
		bound = byDefault
	}
	if bound > 0 && file >= bound {
		if file > bound {
			m.note(field, "ignored: the limit in force without it is lower")
		}
		return
	}
	*out = file
}

func (m *merger) mounts() {
	for _, f := range m.file.Mounts {
		switch {
		case !within(f.Source, m.workspace) || f.Writable:
			m.note("mounts", strconv.Quote(f.String())+" is ignored: a project may mount parts of its workspace, read-only")
		case m.covers(f):
			m.note("mounts", strconv.Quote(f.String())+" is ignored: it would lie over a mount of yours")
		default:
			m.out.Mounts = append(m.out.Mounts, f)
		}
	}
}

// covers says whether a file's mount would hide or replace one of the person's.
func (m *merger) covers(f hostview.Mount) bool {
	for _, own := range m.user.Mounts {
		if within(own.Target, f.Target) || within(f.Target, own.Target) {
			return true
		}
	}
	return false
}

func (m *merger) env() {
	own := make(map[string]bool)
	for _, kv := range m.user.Env {
		name, _, _ := strings.Cut(kv, "=")
		own[name] = true
	}
	for _, kv := range m.file.Env {
		name, _, set := strings.Cut(kv, "=")
		switch {
		case own[name]:
			m.note("env", name+": yours is used")
		case !set && !slices.Contains(m.user.PassEnv, name):
			m.note("env", "the project asks for your variable "+name+", which does not pass; --env "+name+" passes it")
		default:
			m.out.Env = append(m.out.Env, kv)
		}
	}
}
