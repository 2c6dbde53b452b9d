// Package pack makes the kit of the microVM level (package kit): it takes a kernel and its modules out
// of what a Debian package unpacks to, collects the monitor with all that it needs, and writes the first file
// system. Only ./scripts/levels uses it.
package pack
