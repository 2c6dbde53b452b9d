package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// PathRules say which of the host's files a sandbox may read and change. Of
// the rules whose path is the file's or a folder above it, the most specific
// one that speaks of the access decides; at the same path, denial does. To
// allow writing allows reading; to deny reading denies writing.
type PathRules struct {
	AllowRead  []string `json:"allow_read,omitempty"`
	AllowWrite []string `json:"allow_write,omitempty"`
	DenyRead   []string `json:"deny_read,omitempty"`
	DenyWrite  []string `json:"deny_write,omitempty"`
}

// Access is what is done with a file.
type Access int

// The accesses.
const (
	Read Access = iota
	Write
)

// PathDecision says what the rules make of a file.
type PathDecision struct {
	Verdict Verdict // Allow or Deny
	Rule    string  // "allow_write /home/u/p"; "" when none decided
	Reason  string
	Why     string
	// Over are the less specific rules that would have said otherwise.
	Over []string
}

// Decide says whether file, an absolute path, may be accessed. What no rule
// speaks of is denied: then only the sandbox's own root and workspace show it.
func (r PathRules) Decide(file string, access Access) PathDecision {
	clean := path.Clean(file)
	if !strings.HasPrefix(file, "/") || strings.ContainsRune(file, 0) {
		return PathDecision{Reason: ReasonInvalid, Why: fmt.Sprintf("%q is no absolute path", file)}
	}
	type found struct {
		name, path string
		verdict    Verdict
	}
	var all []found
	collect := func(name string, list []string, v Verdict, accesses ...Access) {
		for _, p := range list {
			if slices.Contains(accesses, access) && beneath(clean, p) {
				all = append(all, found{name + " " + p, p, v})
			}
		}
	}
	collect("deny_read", r.DenyRead, Deny, Read, Write)
	collect("deny_write", r.DenyWrite, Deny, Write)
	collect("allow_write", r.AllowWrite, Allow, Read, Write)
	collect("allow_read", r.AllowRead, Allow, Read)
	if len(all) == 0 {
		return PathDecision{Reason: ReasonNoRule, Why: "no rule speaks of it, so it is there only where the sandbox's own root or workspace shows it"}
	}
	// Denials stand first, and the sort keeps that for paths of the same length.
	slices.SortStableFunc(all, func(a, b found) int { return len(b.path) - len(a.path) })
	d := PathDecision{Verdict: all[0].verdict, Rule: all[0].name, Reason: ReasonRule}
	for _, f := range all[1:] {
		if f.verdict != d.Verdict {
			d.Over = append(d.Over, f.name)
		}
	}
	d.Why = fmt.Sprintf("%s is the most specific rule", d.Rule)
	if len(d.Over) > 0 {
		d.Why += ", and wins over " + strings.Join(d.Over, ", ")
	}
	return d
}

func beneath(file, folder string) bool {
	return file == folder || folder == "/" || strings.HasPrefix(file, folder+"/")
}

func (d pathsDoc) compile() (PathRules, error) {
	for name, list := range map[string][]string{"allow_read": d.AllowRead, "allow_write": d.AllowWrite, "deny_read": d.DenyRead, "deny_write": d.DenyWrite} {
		for i, p := range list {
			at := fmt.Sprintf("paths.%s[%d]", name, i)
			if !absolute(p) {
				return PathRules{}, &Error{At: at, Why: fmt.Sprintf("%q is no absolute, plain path", p), Fix: "write it from /, without .., ~, wildcards and a slash at the end"}
			}
			if p == "/" && name == "allow_write" {
				return PathRules{}, &Error{At: at, Why: "it would be the whole machine", Fix: "name the folders that are needed"}
			}
		}
	}
	return PathRules(d), nil
}

func absolute(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p && !strings.ContainsAny(p, "\x00*")
}
