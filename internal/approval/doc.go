// Package approval keeps the questions that sandboxes' rules ask, for as long as
// whoever asks lives: one file each below BAILEY_HOME/approvals, so that a person
// can answer from another terminal.
//
//	ID.json     a question, locked by the process that asks
//	ID.answer   its answer
//
// A question is answered once. Whoever links an answer first has answered it: a
// person on either terminal, or the asking process when the time is up. A file
// whose lock nobody holds was left by a process that was killed, and is removed
// by the next one that looks. Both ends are told of changes by the kernel.
//
// A durable question is asked by somebody who may die and come back, as the daemon
// does: until its time is up nobody removes it, an answer is taken, and whoever
// asks the same of the same sandbox gets it, once.
//
// The folder is the owner's alone and no sandbox sees it, so that none can answer
// its own question.
package approval
