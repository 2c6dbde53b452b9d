package seatbelt

import (
	"fmt"
	"regexp"
	"strings"
)

// This is a small evaluator of the profile language, so that a test can ask
// what a profile means and not only whether its bytes have changed.

type node struct {
	atom string // a symbol, or the text of a string or expression
	list []node
	text bool // atom was written in quotes
}

func parse(s string) ([]node, error) {
	var stack [][]node
	var top []node
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == ';':
			for i < len(s) && s[i] != '\n' {
				i++
			}
		case c == ' ' || c == '\n' || c == '\t':
			i++
		case c == '(':
			stack, top = append(stack, top), nil
			i++
		case c == ')':
			if len(stack) == 0 {
				return nil, fmt.Errorf("one ) too many at %d", i)
			}
			done := node{list: top}
			top = append(stack[len(stack)-1], done)
			stack = stack[:len(stack)-1]
			i++
		case c == '"':
			var b strings.Builder
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
				b.WriteByte(s[i])
			}
			top = append(top, node{atom: b.String(), text: true})
			i++
		case strings.HasPrefix(s[i:], `#"`): // without escapes
			end := strings.IndexByte(s[i+2:], '"')
			if end < 0 {
				return nil, fmt.Errorf("an expression does not end")
			}
			top = append(top, node{atom: s[i+2 : i+2+end], text: true})
			i += end + 3
		default:
			end := strings.IndexAny(s[i:], " \n\t()\"")
			if end <= 0 {
				return nil, fmt.Errorf("cannot read %q", s[i:min(i+20, len(s))])
			}
			top = append(top, node{atom: s[i : i+end]})
			i += end
		}
	}
	if len(stack) != 0 {
		return nil, fmt.Errorf("%d ) are missing", len(stack))
	}
	return top, nil
}

// operations that the generator may use: an unknown one would keep a profile
// from compiling.
var operations = map[string]bool{
	"default": true, "file-read*": true, "file-read-metadata": true, "file-read-data": true, "file-test-existence": true, "file-map-executable": true,
	"file-write*": true, "file-write-data": true, "file-write-create": true, "file-write-unlink": true, "file-write-setugid": true, "file-ioctl": true,
	"process-exec*": true, "process-fork": true, "process-info*": true, "signal": true, "pseudo-tty": true,
	"ipc-posix-sem": true, "mach-lookup": true, "sysctl-read": true, "network*": true,
}

// decide answers whether a profile allows an operation on a subject: a path,
// or the name of what else the operation is about.
func decide(profile []node, operation, subject string, extensions ...string) (bool, error) {
	allowed := false
	for _, n := range profile {
		head := n.list[0].atom
		if head == "version" {
			continue
		}
		if head != "allow" && head != "deny" {
			return false, fmt.Errorf("unknown form %q", head)
		}
		about, filters := false, 0
		matched := false
		for _, arg := range n.list[1:] {
			if arg.list == nil {
				if !operations[arg.atom] {
					return false, fmt.Errorf("unknown operation %q", arg.atom)
				}
				about = about || covers(arg.atom, operation)
				continue
			}
			filters++
			ok, err := match(arg, subject, extensions)
			if err != nil {
				return false, err
			}
			matched = matched || ok
		}
		if about && (filters == 0 || matched) {
			allowed = head == "allow"
		}
	}
	return allowed, nil
}

func covers(pattern, operation string) bool {
	if pattern == "default" {
		return true
	}
	if p, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(operation, p)
	}
	return pattern == operation
}

func match(filter node, subject string, extensions []string) (bool, error) {
	kind, args := filter.list[0].atom, filter.list[1:]
	if kind != "require-all" {
		if len(args) != 1 {
			return false, fmt.Errorf("%s takes one argument, not %d", kind, len(args))
		}
		if len(args[0].atom) > 900 {
			return false, fmt.Errorf("a string of %d bytes does not compile", len(args[0].atom))
		}
	}
	switch kind {
	case "literal", "global-name", "sysctl-name":
		return subject == args[0].atom, nil
	case "target":
		return subject == args[0].atom, nil
	case "subpath":
		p := args[0].atom
		return p == "/" || subject == p || strings.HasPrefix(subject, p+"/"), nil
	case "sysctl-name-prefix":
		return strings.HasPrefix(subject, args[0].atom), nil
	case "regex", "ipc-posix-name-regex":
		re, err := regexp.Compile(args[0].atom)
		if err != nil {
			return false, err
		}
		return re.MatchString(subject), nil
	case "extension":
		for _, e := range extensions {
			if e == args[0].atom {
				return true, nil
			}
		}
		return false, nil
	case "require-all":
		for _, a := range args {
			if ok, err := match(a, subject, extensions); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	return false, fmt.Errorf("unknown filter %q", kind)
}
