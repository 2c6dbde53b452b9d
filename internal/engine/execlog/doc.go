// Package execlog keeps the output of one execution on disk, so that it can be
// read from any offset by anybody, during it and later.
//
// Each stream lies in segment files of one folder, named by the offset of their
// first byte: stdout.0000000000000000, stdout.0000000000800000. What is kept of a
// stream is bounded; the oldest segments are dropped and offsets go on counting.
//
// Bytes come from pipes and are moved by splice(2) from the pipe to the end of the
// last segment. That is one step of the kernel: it writes, and takes out of the
// pipe what it has written, before a signal can end the process. So when the daemon
// is killed at any moment each byte is either in the file or still in the pipe,
// which the keeper holds, and the file's size says where to go on. A terminal's
// bytes pass through such a pipe too.
//
// What was moved survives the death of every process at once; it reaches the disk
// when the kernel writes it back. A crash of the host ends its sandboxes and may
// cost what their last seconds wrote here.
//
// A stream that nobody can write to any more costs nothing; one that is silent
// costs a goroutine that waits in the runtime's poller, and no thread.
//
// The package touches the folder that it is given and the descriptors.
package execlog
