// Package fault kills bailey at every step of its work and at random moments,
// takes away what it stands on, and looks at what is left: no process, mount,
// namespace or loop device, nothing changed on the host, and in the data folder
// at most the run itself, which can be shown, applied and thrown away.
//
// It has tests only, against the real program.
package fault
