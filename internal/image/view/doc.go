// Package view reads a stack of unpacked layers as overlayfs would show it,
// without mounting: folders are merged, whiteouts and opaque folders hide what
// is below. Names are resolved inside the stack; no link leads out of it.
//
// It reads below the folders it is given, which nobody may be changing, and
// nothing else.
package view
