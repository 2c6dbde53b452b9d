// Package share serves a folder to another kernel: FUSE requests
// (include/uapi/linux/fuse.h) come over a byte stream, such as a port of a virtual
// machine, and are done on the folder, as the process that serves.
//
// What asks is hostile. Every message has a bound; a name is one component; paths are
// resolved by the kernel below the folder with no link followed, so that neither a link
// nor a rename under way leads outside; only regular files and folders are opened, and
// no device is made. A message that makes no sense ends the conversation.
//
// The other kernel is taken for the only one that changes the folder, and may remember what
// it was told for an hour; below Options.Live others may change things too, and it
// asks again after a second.
package share
