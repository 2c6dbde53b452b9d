package cli

import (
	"math"
	"runtime"
	"runtime/debug"
)

// collectLate puts the first garbage collection off until the program holds
// 64 MB: almost every call of bailey is over before that, and a collection
// costs it a tenth of its time. From the first one on all is as usual, so that
// a large set of changes does not make the program large beyond need.
func collectLate() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(64 << 20)
	runtime.AddCleanup(new([16]byte), func(int) { collectAsUsual() }, 0)
}

func collectAsUsual() {
	debug.SetGCPercent(100)
	debug.SetMemoryLimit(math.MaxInt64)
}
