// Package starter starts a gate: the process `baileyd gate`, which reads what
// sandboxes send, and the process `baileyd vault`, which holds the key of the
// secrets. Their conversation is a pipe between the two; whoever starts them sees
// no value. It says to the vault whose secrets and which lineages' authorities the
// gate needs, and speaks with the gate by package control.
//
// It touches these two processes and nothing else.
package starter
