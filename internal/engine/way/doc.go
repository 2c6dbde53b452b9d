// Package way is the engine's side of the gate: one process `baileyd gate`, with
// the vault that tells it secrets, serves the ways out of all sandboxes. When
// either dies both are started anew, and every way is opened again as it was: same
// certificate authority, same placeholders, same addresses of names, same
// listeners. Nothing gets out meanwhile.
//
// It touches the gate's and the vault's process, the folder of approvals below the
// data folder, and the name table files it is given. No value of a secret passes
// through it.
package way
