package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

func isPermission(err error) bool { return errors.Is(err, fs.ErrPermission) }
func isAbsent(err error) bool     { return errors.Is(err, fs.ErrNotExist) }

// subordinateIDs says whether an ordinary user's sandboxes can have more than
// one id.
func (h *host) subordinateIDs() Result {
	r := Result{Name: "subordinate-ids", Title: "several users inside"}
	if h.UID == 0 {
		r.Status, r.Value = OK, "root gives each sandbox ids of its own"
		return r
	}
	why := ""
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		if h.subordinateCount(file) == 0 && why == "" {
			why = file + " gives this user no ids"
		}
	}
	for _, name := range []string{"newuidmap", "newgidmap"} {
		if why == "" {
			why = h.setuidWhy(name)
		}
	}
	if why == "" {
		r.Status, r.Value = OK, strconv.FormatInt(h.subordinateCount("/etc/subuid"), 10)+" subordinate ids"
		return r
	}
	r.Status, r.Value, r.Why = Warn, "one id only", why+"; programs inside cannot change users"
	user := h.User
	if user == "" {
		user = `"$USER"`
	}
	r.Fix = []Step{{Text: "install newuidmap and give this user a range", Command: "sudo apt-get install uidmap   # elsewhere: shadow-utils\n" +
		"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + user}}
	return r
}

// subordinateCount adds up the ids that a subuid(5) file gives this user.
func (h *host) subordinateCount(file string) int64 {
	var n int64
	for _, line := range strings.Split(h.read(file), "\n") {
		f := strings.Split(line, ":")
		if len(f) != 3 || f[0] == "" || f[0] != h.User && f[0] != strconv.Itoa(h.UID) {
			continue
		}
		if count, err := strconv.ParseInt(f[2], 10, 64); err == nil && count > 0 && count < 1<<32 {
			n += count
		}
	}
	return n
}

// capabilityXattr marks a program that gets rights without being setuid.
const capabilityXattr = "security.capability"

// setuidWhy says why a helper such as newuidmap cannot do its work.
func (h *host) setuidWhy(name string) string {
	if h.LookPath == nil {
		return name + " was not looked for"
	}
	p, err := h.LookPath(name)
	if err != nil {
		return name + " is not installed"
	}
	fi, err := os.Stat(p)
	if err != nil {
		return name + " cannot be looked at"
	}
	if fi.Mode()&fs.ModeSetuid == 0 && !hasXattr(p, capabilityXattr) {
		return name + " is neither setuid nor has capabilities"
	}
	return ""
}

// optional looks for what stronger levels use beside Bailey's own programs.
func (h *host) optional() []Result {
	return []Result{
		h.own(Result{Name: "runsc", Title: "gVisor (runsc)"}, "gvisor", "build it, in Bailey's sources; it takes some minutes of a processor the first time", "runsc", "bailey-cell"),
		h.own(Result{Name: "machines", Title: "virtual machines"}, "microvm", "make it, in Bailey's sources; as root it installs what that takes", "bailey-microvm.kit", "bailey-vmm", "bailey-cell"),
	}
}

// own looks for what a level needs, which has to be what Bailey was built with: no
// other version of it is taken. The first of files is made by scripts/levels, the
// others are programs of Bailey.
func (h *host) own(r Result, level, make string, files ...string) Result {
	if h.Executable == "" {
		r.Status, r.Value = Unknown, "it is not known where bailey is"
		return r
	}
	for i, name := range files {
		if fi, err := os.Stat(path.Join(path.Dir(h.Executable), name)); err == nil && fi.Mode().IsRegular() {
			continue
		}
		r.Status, r.Value, r.Why = Missing, "not there", name+" is not beside bailey; the level "+level+" needs it"
		r.Fix = []Step{keepTogether}
		if i == 0 {
			r.Fix = []Step{{Text: make, Command: "./scripts/levels " + level}}
		}
		return r
	}
	r.Status, r.Value = OK, "beside bailey"
	return r
}

// companion is a program that belongs beside bailey, and what needs it.
type companion struct{ name, needed string }

var companions = []companion{
	{"bailey-init", "sandboxes that stay (package embedded)"},
	{"baileyd", "the level container"},
}

// beside says whether a program lies beside bailey.
func (h *host) beside(name string) bool {
	fi, err := os.Stat(path.Join(path.Dir(h.Executable), name))
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// keepTogether is what to do about a program that is not there.
var keepTogether = Step{Text: "build everything, and keep the programs in one folder", Command: "./scripts/build"}

// programs looks for what belongs beside bailey.
func (h *host) programs() Result {
	r := Result{Name: "programs", Title: "Bailey's own programs", Status: OK}
	if h.Executable == "" {
		r.Status, r.Value = Unknown, "it is not known where bailey is"
		return r
	}
	r.Value = "bailey"
	var missing []string
	for _, c := range companions {
		if h.beside(c.name) {
			r.Value += ", " + c.name
		} else {
			missing = append(missing, c.name+" is not beside bailey, and is needed for "+c.needed)
		}
	}
	if len(missing) > 0 {
		r.Status = Warn
		r.Why = strings.Join(missing, "; ")
		r.Fix = []Step{keepTogether}
	}
	return r
}

// lowSpace is what the data folder should have free, in bytes: less than this
// fills up in one build.
const lowSpace = 2 << 30

// dataFolder looks at where Bailey keeps what sandboxes write.
func (h *host) dataFolder() Result {
	r := Result{Name: "data-folder", Title: "Bailey's data folder", Status: OK}
	if h.BaileyHome == "" || h.FileSystem == nil {
		r.Status, r.Value = Unknown, "not looked at"
		return r
	}
	fsys, err := h.FileSystem(h.BaileyHome)
	if err != nil {
		r.Status, r.Value, r.Why = Warn, "cannot be used", err.Error()
		r.Fix = []Step{{Text: "name another folder", Command: "export BAILEY_HOME=/path/to/a/folder"}}
		return r
	}
	r.Value = fmt.Sprintf("%s, %s free", fsys.Kind, size(fsys.Free))
	switch {
	case !fsys.Layer:
		r.Status = Warn
		r.Why = "this kind of file system cannot carry copy-on-write layers, so workspaces are copied whole"
		r.Fix = []Step{{Text: "put Bailey's data on ext4, xfs, btrfs or tmpfs", Command: "export BAILEY_HOME=/path/on/such/a/disk"}}
	case fsys.Free < lowSpace:
		r.Status, r.Why = Warn, "that is little for the changes and caches of sandboxes"
		r.Fix = []Step{{Text: "make room, or name a folder on a larger disk", Command: "export BAILEY_HOME=/path/on/a/larger/disk"}}
	}
	return r
}

// lowMemory is what a host should have, in bytes.
const lowMemory = 512 << 20

func (h *host) memory() Result {
	r := Result{Name: "memory", Title: "memory", Status: Unknown, Value: "unknown"}
	var total, available int64 = -1, -1
	for _, line := range strings.Split(h.read("/proc/meminfo"), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || n < 0 || n > 1<<50 {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			total = n << 10
		case "MemAvailable:":
			available = n << 10
		}
	}
	if total < 0 {
		return r
	}
	r.Status, r.Value = OK, size(total)
	if available >= 0 {
		r.Value += ", " + size(available) + " available"
	}
	if total < lowMemory {
		r.Status, r.Why = Warn, "that is little for builds inside"
	}
	return r
}

// size writes a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<40:
		return fmt.Sprintf("%.1f TiB", float64(n)/(1<<40))
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
