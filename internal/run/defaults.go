package run

import (
	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// Defaults are the limits nobody asked for, as this host can bear them.
func Defaults() bailey.Limits {
	l := bailey.DefaultLimits
	l.Memory = linux.HostMemory() / 4 * 3
	return l
}
