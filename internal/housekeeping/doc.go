// Package housekeeping tests the repository itself: that imports point one way,
// that the command line links only what it must, that files stay short enough to
// read in one sitting, and that the documents say what the programs do. It has
// no code of its own and reads the checkout that it lies in.
package housekeeping
