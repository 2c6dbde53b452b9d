// Package rootfs holds the description of a prepared root file system: what
// `baileyd image prepare` prints and a driver mounts. It is types only and
// pulls in nothing but the standard library, so that the command line can read
// such a description without linking the code that makes one.
package rootfs
