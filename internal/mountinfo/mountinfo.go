package mountinfo

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Mount is one line. Octal escapes are decoded.
type Mount struct {
	ID      int
	Root    string // the folder of the file system that is the mount's root
	Point   string // where it is mounted, as this process sees it
	FSType  string
	Source  string
	Options string // of the file system, parted by commas
}

// Self gives the mounts that this process sees, in the order in which they lie
// on each other.
func Self() ([]Mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

// Parse reads the format of /proc/PID/mountinfo:
//
//	36 35 98:0 /root /point options optional-fields - fstype source super-options
//
// A line that is not of that format is an error, because a mount that is
// overlooked would be a hole in somebody's view.
func Parse(text []byte) ([]Mount, error) {
	list := make([]Mount, 0, bytes.Count(text, []byte("\n"))+1)
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		m, ok := parse(string(line))
		if !ok {
			return nil, fmt.Errorf("a line of mountinfo is malformed: %q", line)
		}
		list = append(list, m)
	}
	return list, nil
}

func parse(line string) (Mount, bool) {
	fields := strings.Split(line, " ")
	dash := 6
	for dash < len(fields) && fields[dash] != "-" {
		dash++
	}
	if len(fields) < dash+4 || !strings.HasPrefix(fields[4], "/") {
		return Mount{}, false
	}
	id, err := strconv.Atoi(fields[0])
	if err != nil {
		return Mount{}, false
	}
	return Mount{
		ID: id, Root: unescape(fields[3]), Point: unescape(fields[4]),
		FSType: unescape(fields[dash+1]), Source: unescape(fields[dash+2]), Options: unescape(fields[dash+3]),
	}, true
}

// unescape decodes the octal escapes that the kernel writes for space, tab,
// newline, backslash and number sign: \040, \011, \012, \134, \043.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] >= '0' && s[i+1] <= '3' && octal(s[i+2]) && octal(s[i+3]) {
			b = append(b, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 3
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

func octal(c byte) bool { return c >= '0' && c <= '7' }
