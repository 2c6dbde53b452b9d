// Package cli is the command line: one file per command. A command reads its
// flags, calls the room that does the work, and shows what came of it; it holds
// no knowledge of its own about sandboxes.
//
// Output is for people on a terminal and JSON on request; progress and errors
// go to stderr. An error ends with exit code 125 and its stable code in brackets.
package cli
