// Package disk gives a sandbox's layers a file system of their own with a size
// that cannot be exceeded: an ext4 image in the run's folder, as a sparse file
// that takes what is written to it and no more.
//
// Only root can mount one. The mount is never attached to the host's tree: Open
// gives a detached mount that lives as long as a descriptor of this process, so
// whatever kills the process, no mount and no loop device remain, and the image
// with its content does.
//
// It may touch the image's path, a free loop device, and runs mke2fs of e2fsprogs.
package disk
