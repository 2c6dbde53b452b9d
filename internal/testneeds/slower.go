package testneeds

import (
	"os"
	"strconv"
	"time"
)

// SlowerVariable tells tests how many times slower than usual their machine is: an
// emulated one, for instance. Nothing else sets it.
const SlowerVariable = "BAILEY_TEST_SLOWER"

// Slower gives how long to wait on this machine for what takes d elsewhere at the
// most: for bounds that nothing but a hang reaches, never for what a product promises.
func Slower(d time.Duration) time.Duration {
	if n, err := strconv.Atoi(os.Getenv(SlowerVariable)); err == nil && n > 1 && n <= 100 {
		return d * time.Duration(n)
	}
	return d
}
