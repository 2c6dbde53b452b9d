// Package unpack turns one layer, a tar stream that nobody vouches for, into a
// folder that overlayfs can use as a lower layer. It writes below the folder
// it is given and nowhere else, follows no link out of it, starts nothing, and
// reads nothing but the stream.
//
// What a layer means is fixed by the image layer specification of the Open
// Container Initiative (image-spec, layer.md); what the folder has to look
// like by the kernel's overlayfs documentation (whiteouts and opaque
// directories).
package unpack
