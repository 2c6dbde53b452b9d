//go:build !linux

package folder

// spread is for file systems of Linux.
func spread(int) {}
