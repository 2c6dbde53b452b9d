// Package cell is the first process of a cell: a sandbox around a sandbox. The outer one is a
// container, with all its walls; the inner one has a kernel of its own, such as a sentry or a virtual
// machine, and bailey-init in it. The process starts the inner program, and stands between the owner
// outside, who takes it for bailey-init (guest.Relay), and the bailey-init inside, which is reached by bytes alone.
//
// Config says what to start; whoever builds the cell writes it as a file. Serve is for a
// sandbox that stays, Once for one command with the caller's own descriptors.
//
// Control is a socket of its own, for whoever built the cell: it has a port inside dialled, a program of
// the cell run, and tells how the cell is. Each connection is one request, so that
// it outlives whoever asks.
//
// What comes from inside is hostile. It can end the conversation, and with it the cell; it is never
// an instruction. Like bailey-init the process has to stay small: it imports no net.
package cell
