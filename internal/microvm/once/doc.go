// Package once runs one command in a virtual machine of its own, with the caller's
// descriptors as the command's: what `bailey run` needs of the microVM level.
//
// How the command ended is written to a file, for whoever started the cell that this
// runs in.
package once
