package doctor

import (
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
)

// Identity is what a report for strangers must not tell.
type Identity struct {
	User     string
	Home     string
	Hostname string
	// Secrets are further texts that must not appear, such as the data
	// folder's path.
	Secrets []string
}

// secretForms are the forms of what tells one host or person from another.
type secretForms struct {
	absolutePath, longHex, uuid, mac, ipv4, ipv6, email *regexp.Regexp
}

// forms are compiled when a report is written: every command links this package.
var forms = sync.OnceValue(func() secretForms {
	return secretForms{
		absolutePath: regexp.MustCompile(`(?:\bGNU)?/[^\s"'<>|:;,()` + "`" + `]+`),
		longHex:      regexp.MustCompile(`(?i)\b[0-9a-f]{16,}\b`),
		uuid:         regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`),
		mac:          regexp.MustCompile(`(?i)\b(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b`),
		ipv4:         regexp.MustCompile(`\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b`),
		ipv6:         regexp.MustCompile(`(?i)(?:\b[0-9a-f]{1,4}|:):(?:[0-9a-f]{0,4}:){1,6}[0-9a-f]{0,4}`),
		email:        regexp.MustCompile(`[\w.+-]+@[\w.-]+\.\w+`),
	}
})

// publicPaths are the places that are the same on every host.
var publicPaths = []string{"/proc", "/sys", "/dev", "/usr", "/bin", "/sbin", "/lib", "/etc/sysctl.d", "/etc/apparmor.d", "/etc/subuid", "/etc/subgid",
	"/etc/os-release", "/path", "/var/lib/bailey", "/run/.containerenv", "/.dockerenv"}

// Redacted gives the report without what would tell who or where its host is:
// names, homes and other paths, addresses, serial numbers and identifiers.
func (r Report) Redacted(id Identity) Report {
	d := redactor(id)
	out := r
	out.Version, out.System = d.text(r.Version), d.text(r.System)
	out.Kernel = d.names(r.Kernel) // four numbers in a kernel's version are no address
	out.Levels = slices.Clone(r.Levels)
	for i := range out.Levels {
		l := &out.Levels[i]
		l.Why, l.Fix = d.text(l.Why), d.steps(l.Fix)
	}
	out.Results = slices.Clone(r.Results)
	for i := range out.Results {
		res := &out.Results[i]
		if res.Name == "kernel" {
			res.Value = d.names(res.Value)
		} else {
			res.Value = d.text(res.Value)
		}
		res.Why, res.Fix = d.text(res.Why), d.steps(res.Fix)
	}
	return out
}

// redaction replaces one text.
type redaction struct {
	text, with string
	word       bool // only where it stands as a word of its own
}

type redactions []redaction

// redactor lists what to replace, longest first, so that no rest of a longer
// secret stays.
func redactor(id Identity) redactions {
	var d redactions
	add := func(text, with string, word bool) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		if text != "" && text != "/" {
			d = append(d, redaction{text, with, word})
		}
	}
	add(id.Home, "~", false)
	if id.User != "root" {
		add(id.User, "USER", true)
	}
	if id.Hostname != "localhost" {
		add(id.Hostname, "HOST", true)
		short, _, _ := strings.Cut(id.Hostname, ".")
		if short != "localhost" {
			add(short, "HOST", true)
		}
	}
	for _, s := range id.Secrets {
		add(s, "SECRET", false)
	}
	sort.SliceStable(d, func(i, j int) bool { return len(d[i].text) > len(d[j].text) })
	return d
}

// names replaces the known texts.
func (d redactions) names(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	for _, r := range d {
		if !r.word {
			s = strings.ReplaceAll(s, r.text, r.with)
			continue
		}
		re := regexp.MustCompile(`(?i)(^|[^\pL\pN])` + regexp.QuoteMeta(r.text) + `($|[^\pL\pN])`)
		for re.MatchString(s) { // two matches may share the character between them
			s = re.ReplaceAllString(s, "${1}"+r.with+"${2}")
			if strings.EqualFold(r.text, r.with) {
				break
			}
		}
	}
	return s
}

// text replaces the known texts, and all that has the form of a secret.
func (d redactions) text(s string) string {
	s = d.names(s)
	f := forms()
	s = f.email.ReplaceAllString(s, "ADDRESS")
	s = f.uuid.ReplaceAllString(s, "ID")
	s = f.mac.ReplaceAllString(s, "ADDRESS")
	s = f.absolutePath.ReplaceAllStringFunc(s, func(p string) string {
		if p == "GNU/Linux" { // a system's name and no path
			return p
		}
		p, gnu := strings.CutPrefix(p, "GNU")
		if gnu {
			return "GNU/PATH"
		}
		for _, public := range publicPaths {
			if p == public || strings.HasPrefix(p, public+"/") {
				return p
			}
		}
		return "/PATH"
	})
	s = f.ipv6.ReplaceAllString(s, "ADDRESS")
	s = f.ipv4.ReplaceAllString(s, "ADDRESS")
	return f.longHex.ReplaceAllString(s, "ID")
}

func (d redactions) steps(steps []Step) []Step {
	out := slices.Clone(steps)
	for i := range out {
		out[i].Text, out[i].Command = d.text(out[i].Text), d.text(out[i].Command)
	}
	return out
}
