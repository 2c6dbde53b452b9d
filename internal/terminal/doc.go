// Package terminal joins a person's terminal with a sandbox: it copies what
// the person types to the sandbox's own pseudo-terminal and shows, filtered,
// what comes back; or it copies plain streams where the person's side is not a
// terminal.
//
// The rules it keeps:
//
//   - The person's terminal is never handed inside. What is inside gets a
//     pseudo-terminal of its own, or pipes.
//   - Everything from inside is hostile until Filter or Printable has seen it.
//   - Whatever happens, the person gets the terminal back as it was.
//
// The package touches the files that it is given, the terminal settings of the
// person's terminal, and, while a Relay runs, the process's handlers for the
// signals of terminals and job control. It opens nothing by itself.
package terminal
