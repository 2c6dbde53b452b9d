package agenttools

import (
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// hunk is one place of a file that a V4A diff changes: lines that are there, some of
// which go, and lines that come.
type hunk struct {
	anchors []string // lines that come before it, in this order
	lines   []string // each with its sign: ' ', '-' or '+'
	end     bool     // what is there ends the file
}

const endOfFile = "*** End of File"

func patchError(fix, why string, args ...any) error {
	return bailey.Errorf(bailey.CodeUsage, "apply the diff", fix, why, args...)
}

// parsePatch reads a V4A diff of one file. There are no numbers of lines in it: places are
// found by what is there.
func parsePatch(diff string) (hunks []hunk, err error) {
	h := hunk{}
	flush := func() {
		if len(h.lines) > 0 {
			hunks, h = append(hunks, h), hunk{}
		}
	}
	for n, line := range strings.Split(strings.TrimSuffix(diff, "\n"), "\n") {
		switch {
		case line == "@@" || strings.HasPrefix(line, "@@ "):
			flush()
			if anchor := strings.TrimPrefix(line[2:], " "); anchor != "" {
				h.anchors = append(h.anchors, anchor)
			}
		case line == endOfFile:
			if len(h.lines) == 0 {
				return nil, patchError("give the lines before it", "line %d ends nothing", n+1)
			}
			h.end = true
			flush()
		case line == "":
			h.lines = append(h.lines, " ") // an empty line that is there, without its sign
		case line[0] == ' ' || line[0] == '-' || line[0] == '+':
			h.lines = append(h.lines, line)
		default:
			return nil, patchError("begin each line with a space, -, + or @@", "line %d, %q, has no sign", n+1, cutShort(line))
		}
	}
	if len(h.anchors) > 0 && len(h.lines) == 0 {
		return nil, patchError("give the lines that change after it", "%q is the last line", cutShort("@@ "+h.anchors[len(h.anchors)-1]))
	}
	flush()
	return hunks, nil
}

// created gives the content of a file that a diff makes.
func created(diff string) (string, error) {
	var b strings.Builder
	if diff == "" {
		return "", nil
	}
	for n, line := range strings.Split(strings.TrimSuffix(diff, "\n"), "\n") {
		if !strings.HasPrefix(line, "+") {
			return "", patchError("begin each line of a new file with +", "line %d, %q, does not", n+1, cutShort(line))
		}
		b.WriteString(line[1:] + "\n")
	}
	return b.String(), nil
}

// applyPatch gives a file's content after a diff: all of it or an error.
func applyPatch(text, diff string) (string, error) {
	hunks, err := parsePatch(diff)
	if err != nil {
		return "", err
	}
	if len(hunks) == 0 {
		return "", patchError("give lines that change", "it changes nothing")
	}
	var have, out []string
	open := text != "" && !strings.HasSuffix(text, "\n") // its last line has no end
	if text != "" {
		have = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	at := 0 // lines of have that are in out, or gone
	for _, h := range hunks {
		from := at
		for _, a := range h.anchors {
			i := find(have, []string{a}, from, false)
			if i < 0 {
				return "", patchError("read the file and give a line as it is there, in the order of the file", "the line %q is not in it, or is before what was changed already", cutShort(a))
			}
			from = i + 1
		}
		var old []string
		for _, l := range h.lines {
			if l[0] != '+' {
				old = append(old, l[1:])
			}
		}
		i := from
		switch {
		case len(old) > 0:
			i = find(have, old, from, h.end)
		case len(h.anchors) == 0 || h.end:
			i = len(have) // lines that only come, with no place: at the end
		}
		if i < 0 {
			return "", patchError("read the file and give the lines exactly, in the order of the file", "these lines are not in it, or are before what was changed already: %q", cutShort(strings.Join(old, "\n")))
		}
		out = append(out, have[at:i]...)
		for _, l := range h.lines {
			switch l[0] {
			case '+':
				out = append(out, l[1:])
				continue
			case ' ':
				out = append(out, have[i]) // as it is there, whatever white space the diff has
			}
			i++
		}
		at = i
	}
	out = append(out, have[at:]...)
	if len(out) == 0 {
		return "", nil
	}
	result := strings.Join(out, "\n")
	if !open {
		result += "\n"
	}
	return result, nil
}

// find gives where lines are from a place on: exactly, or else but for white space at their
// ends, or else at both sides. -1 is nowhere.
func find(have, want []string, from int, end bool) int {
	right := func(s string) string { return strings.TrimRight(s, " \t\r") }
	for _, as := range []func(string) string{func(s string) string { return s }, right, strings.TrimSpace} {
		if end {
			from = max(from, len(have)-len(want))
		}
		for i := from; i+len(want) <= len(have); i++ {
			same := true
			for k := range want {
				if as(have[i+k]) != as(want[k]) {
					same = false
					break
				}
			}
			if same {
				return i
			}
		}
	}
	return -1
}

// cutShort is a text for a message.
func cutShort(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
