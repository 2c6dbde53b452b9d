// Package changes tells what a run did to its roots, and carries that over to
// the host or throws it away.
//
// Scan reads the layers of a run, overlay uppers or full copies, and gives a
// Set of changes, each marked when the host would execute it. Seal does so
// once, at the run's end, and keeps with it what each host file was then.
// Apply carries changes over file by file, never over a host file that has
// changed meanwhile; Revert takes that back; Discard drops the layers.
//
// Everything in a layer was written by the sandbox and may be hostile: names,
// links, sizes, modes. Layers are read, and the host is written, only through
// descriptors and openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, so no
// link on either side leads anywhere. The package writes in the run's folder
// and, in Apply, Revert and Quarantine, below the run's roots; nowhere else.
package changes
