// Package standin is an engine for tests of what lies over it: sandboxes are rows
// in memory, commands are functions of this package, files are bytes. It starts
// nothing and needs no rights. It fails as it is told to, and can be swapped under a
// server as a daemon that is restarted would be.
//
// Only tests import it.
package standin
