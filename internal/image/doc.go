// Package image makes root file systems for sandboxes from what a user has: a
// folder, a tar, an OCI image layout, an archive that `docker save` wrote, or
// the host's own /usr. It keeps them in a store, a folder of content-addressed,
// read-only layers that many sandboxes and many processes use at once.
//
// It mounts nothing, starts nothing and talks to no network. It reads the
// source it was given, and for the built-in template a named, world-readable
// subset of the host's /etc; it writes below the store only. Images are
// hostile input: package unpack is the part that meets them first.
//
// Only cmd/baileyd links this package. The command line reads the description
// that it prints (package rootfs).
package image
