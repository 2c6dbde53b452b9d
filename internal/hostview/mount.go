package hostview

import (
	"path"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// Mount is one --mount: a file or folder of the host shown in the sandbox.
type Mount struct {
	Source   string `json:"source"` // absolute, clean path on the host
	Target   string `json:"target"` // absolute, clean path inside
	Writable bool   `json:"writable,omitempty"`
}

// String gives the mount as --mount takes it.
func (m Mount) String() string {
	mode := "ro"
	if m.Writable {
		mode = "rw"
	}
	return m.Source + ":" + m.Target + ":" + mode
}

// ParseMount reads the value of --mount: SRC[:DST][:ro|rw]. SRC may be
// relative to dir, the caller's working folder, and may begin with ~/ for
// home. DST must be absolute; it is SRC if absent. The mode is ro if absent. A
// colon in a path is written as \: and a backslash as \\.
func ParseMount(s, dir, home string) (Mount, error) {
	const fix = "write --mount SRC[:DST][:ro|rw], with \\: for a colon in a path"
	bad := func(format string, args ...any) (Mount, error) {
		return Mount{}, bailey.Errorf(bailey.CodeUsage, "read --mount "+quote(s), fix, format, args...)
	}
	var fields []string
	var field strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == 0:
			return bad("it holds a NUL byte")
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == ':' || s[i+1] == '\\'):
			i++
			field.WriteByte(s[i])
		case s[i] == ':':
			fields = append(fields, field.String())
			field.Reset()
		default:
			field.WriteByte(s[i])
		}
	}
	fields = append(fields, field.String())

	m := Mount{Source: fields[0]}
	rest := fields[1:]
	if n := len(rest); n > 0 && (rest[n-1] == "ro" || rest[n-1] == "rw") {
		m.Writable = rest[n-1] == "rw"
		rest = rest[:n-1]
	}
	if len(rest) > 1 {
		return bad("the mode %q is neither ro nor rw", rest[len(rest)-1])
	}
	switch {
	case m.Source == "":
		return bad("the source is empty")
	case m.Source == "~" || strings.HasPrefix(m.Source, "~/"):
		if !path.IsAbs(home) {
			return bad("there is no home folder that ~ could stand for")
		}
		m.Source = home + m.Source[1:]
	case !path.IsAbs(m.Source):
		if !path.IsAbs(dir) {
			return bad("the source is relative, and there is no working folder")
		}
		m.Source = path.Join(dir, m.Source)
	}
	m.Source = path.Clean(m.Source)
	m.Target = m.Source
	if len(rest) == 1 {
		if !path.IsAbs(rest[0]) {
			return bad("the target %q is not an absolute path", rest[0])
		}
		m.Target = path.Clean(rest[0])
	}
	return m, nil
}

func quote(s string) string { return strconv.Quote(s) }
