package linux

import (
	"bytes"
	"strconv"
)

// parseMemTotal reads the line "MemTotal: N kB" of /proc/meminfo (proc(5)).
func parseMemTotal(b []byte) int64 {
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 3 && string(f[0]) == "MemTotal:" {
			if n, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return 0
}
