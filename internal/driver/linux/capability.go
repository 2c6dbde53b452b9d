package linux

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// lastCap is the highest capability this kernel knows.
var lastCap = sync.OnceValue(func() uintptr {
	if b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n < 64 {
			return uintptr(n)
		}
	}
	return unix.CAP_LAST_CAP
})
