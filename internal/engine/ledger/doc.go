// Package ledger writes what the engine does to the audit log, beside what the
// gate writes of what sandboxes do: that they come, sleep, wake and go, commands
// that are started in them, files that are put there, ports that are connected to.
// Whoever cannot write must not act.
//
// It touches the folder audit of the data folder.
package ledger
