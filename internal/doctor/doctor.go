package doctor

import (
	"context"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// Trial is what a probe found when it tried.
type Trial struct {
	OK    bool
	Value string // in a few words, whether OK or not
	Why   string // why not, or what is worth knowing if OK
	Fix   string // what to do about it
	// Untried: what it needs was looked for, and it was not done, because it takes long.
	Untried bool
}

// Controller is one of the means by which the kernel limits a sandbox.
type Controller struct {
	Name string // cpu, memory, pids or io
	Trial
}

// Cgroups is what a probe found about control groups.
type Cgroups struct {
	Version     string // v2, v1, hybrid or none
	Controllers []Controller
}

// FileSystem describes the file system below a folder.
type FileSystem struct {
	Kind  string // its name, such as ext4
	Free  int64  // bytes the caller may still write
	Layer bool   // it can carry the upper layer of an overlay
}

// Probes is what [Check] looks at and tries. A nil function means that the
// thing cannot be tried here; then only settings are read.
type Probes struct {
	Version string // Bailey's
	// Root is put in front of the paths that are read (/proc, /etc, /sys). Empty
	// means the machine.
	Root       string
	OS, Arch   string // as runtime.GOOS and GOARCH; empty means those
	UID        int    // of the caller
	User       string // the caller's name; may be empty
	Executable string // bailey's own path; may be empty
	BaileyHome string // Bailey's data folder; may be empty
	Getenv     func(string) string
	LookPath   func(string) (string, error)
	FileSystem func(folder string) (FileSystem, error)

	// Namespaces makes a child in new namespaces of every kind that the
	// process level needs and maps the caller's id in.
	Namespaces func(context.Context) error
	// MountProc mounts a fresh proc in such namespaces, Overlay an overlay
	// whose layer is below the folder.
	MountProc func(context.Context) error
	Overlay   func(ctx context.Context, folder string) error
	// Seccomp asks for the filters' actions, Landlock for its version (0: none).
	Seccomp  func() error
	Landlock func() int
	// KVM opens the device and makes an empty virtual machine. It gives the
	// API's version.
	KVM     func() (version int, err error)
	Cgroups func() Cgroups
	// Sandbox builds the smallest sandbox of a level with the real driver. Its
	// word is final: without it, a level counts as available when everything
	// it needs is.
	Sandbox func(context.Context, bailey.Isolation) Trial
	// Egress builds one whose connections lead to a gate.
	Egress func(context.Context) Trial
	// Gate starts a gate and lists what its process has given up; "missing: " is
	// before what it could not.
	Gate func(context.Context) ([]string, error)
}

// host is one examination.
type host struct {
	Probes
	ctx     context.Context
	report  Report
	confine confinement
	kernel  string
}

// Check examines the host. It never fails: what cannot be found out is
// reported as unknown.
func Check(ctx context.Context, p Probes) Report {
	if p.OS == "" {
		p.OS = runtime.GOOS
	}
	if p.Arch == "" {
		p.Arch = runtime.GOARCH
	}
	if p.Getenv == nil {
		p.Getenv = func(string) string { return "" }
	}
	h := &host{Probes: p, ctx: ctx}
	h.report = Report{Version: p.Version, Arch: p.Arch, Root: p.UID == 0, System: p.OS}
	if p.OS == "linux" {
		h.linux()
	} else {
		h.add(h.programs())
		h.add(h.dataFolder())
	}
	h.levels()
	return h.report
}

func (h *host) linux() {
	h.kernel = h.read("/proc/sys/kernel/osrelease")
	h.report.Kernel = h.kernel
	h.report.System = h.systemName()
	h.confine = h.confinement()
	h.add(h.kernelVersion())
	h.add(h.surroundings())
	h.add(h.userNamespaces())
	h.add(h.procMount())
	h.add(h.overlay())
	h.add(h.seccomp())
	h.add(h.landlock())
	h.add(h.cgroups()...)
	h.add(h.egress(), h.gate())
	h.add(h.subordinateIDs())
	h.add(h.kvm())
	h.add(h.optional()...)
	h.add(h.programs())
	h.add(h.dataFolder())
	h.add(h.memory())
}

func (h *host) add(results ...Result) {
	for _, r := range results {
		if r.Name != "" {
			h.report.Results = append(h.report.Results, r)
		}
	}
}

// maxRead bounds what is read of one file of settings, in bytes.
const maxRead = 1 << 20

// read gives a file's text without its last line feed; "" if it cannot be read.
func (h *host) read(p string) string {
	f, err := os.Open(path.Join("/", h.Root, p))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 0, 4096)
	for len(b) < maxRead {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := f.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil {
			break
		}
	}
	return strings.TrimSuffix(string(b), "\n")
}

func (h *host) exists(p string) bool {
	_, err := os.Lstat(path.Join("/", h.Root, p))
	return err == nil
}

// systemName gives the distribution's name, from os-release(5).
func (h *host) systemName() string {
	for _, p := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		for _, line := range strings.Split(h.read(p), "\n") {
			if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				return clean(strings.Trim(v, `"'`))
			}
		}
	}
	return "Linux"
}

// clean makes text from a file fit one line of a report.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, s)
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "")
	}
	return s
}

// levels says for each isolation level whether it works.
func (h *host) levels() {
	add := func(l bailey.Isolation, ok bool, why string, fix ...Step) {
		h.report.Levels = append(h.report.Levels, Level{Level: l, Available: ok, Why: why, Fix: fix})
	}
	const later = "not in this version of Bailey"
	add(bailey.IsolationInterpreter, false, later)
	for _, l := range []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer, bailey.IsolationGVisor, bailey.IsolationMicroVM} {
		ok, why, fix := h.level(l)
		add(l, ok, why, fix...)
	}
	add(bailey.IsolationMachine, false, later)
}

// needs lists the results that a level cannot do without.
var needs = map[bailey.Isolation][]string{
	bailey.IsolationProcess:   {"kernel", "user-namespaces", "proc-mount", "seccomp"},
	bailey.IsolationContainer: {"kernel", "user-namespaces", "proc-mount", "seccomp", "overlay"},
	bailey.IsolationGVisor:    {"runsc", "kernel", "user-namespaces", "proc-mount", "seccomp", "overlay"},
	bailey.IsolationMicroVM:   {"machines", "kernel", "user-namespaces", "proc-mount", "seccomp", "overlay"},
}

// level judges one of the levels that this version has.
func (h *host) level(l bailey.Isolation) (ok bool, why string, fix []Step) {
	if ok, why, fix = h.boundary(l); ok && l.OwnRoot() && h.Executable != "" && !h.beside("baileyd") {
		return false, "baileyd is not beside bailey", []Step{keepTogether}
	}
	return ok, why, fix
}

// boundary says whether a level's boundary can be built.
func (h *host) boundary(l bailey.Isolation) (ok bool, why string, fix []Step) {
	if h.OS == "linux" {
		var untried []string
		for _, name := range needs[l] {
			r := h.report.Result(name)
			switch r.Status {
			case Missing:
				if why == "" {
					why, fix = r.Why, r.Fix
				}
			case Unknown:
				untried = append(untried, r.Title)
			}
		}
		if h.Sandbox == nil {
			switch {
			case why != "":
				return false, why, fix
			case len(untried) > 0:
				return false, "not tried: " + strings.Join(untried, ", "), nil
			}
			return true, "all that it needs is there", nil
		}
	} else if l != bailey.IsolationProcess || h.OS != "darwin" {
		return false, "it needs Linux", nil
	}
	if h.Sandbox == nil {
		return false, "it could not be tried", nil
	}
	t := h.Sandbox(h.ctx, l)
	switch {
	case t.OK && t.Untried:
		return true, t.Why, nil
	case t.OK && t.Why != "":
		return true, "tried: a sandbox was built; " + t.Why, nil
	case t.OK:
		return true, "tried: a sandbox was built and ran", nil
	case why != "":
		return false, why, fix // the cause says more than what failed because of it
	}
	if t.Fix != "" {
		fix = []Step{{Text: t.Fix}}
	}
	return false, "tried: " + t.Why, fix
}
