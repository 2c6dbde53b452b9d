package workspace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Point  string // where it is mounted, octal escapes decoded
	FSType string
	Source string
}

func readMountinfo() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ParseMountinfo(f)
}

// ParseMountinfo reads the format of /proc/PID/mountinfo, as proc(5) has it:
//
//	36 35 98:0 /root /point options optional-fields - fstype source super-options
//
// A line that is not of that format is an error, because a mount that is
// overlooked would be a hole in the view.
func ParseMountinfo(r io.Reader) ([]Mount, error) {
	var list []Mount
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 1 || len(line) == 1 && line[0] != '\n' {
			m, perr := parseMount(bytes.TrimSuffix(line, []byte("\n")))
			if perr != nil {
				return nil, perr
			}
			list = append(list, m)
		}
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func parseMount(line []byte) (Mount, error) {
	fields := strings.Split(string(line), " ")
	bad := func() (Mount, error) { return Mount{}, fmt.Errorf("a line of mountinfo is malformed: %q", line) }
	if len(fields) < 10 {
		return bad()
	}
	dash := -1
	for i := 6; i < len(fields); i++ {
		if fields[i] == "-" {
			dash = i
			break
		}
	}
	if dash < 0 || len(fields) < dash+3 || !strings.HasPrefix(fields[4], "/") {
		return bad()
	}
	return Mount{Point: unescape(fields[4]), FSType: unescape(fields[dash+1]), Source: unescape(fields[dash+2])}, nil
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
