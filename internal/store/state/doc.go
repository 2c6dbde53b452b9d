// Package state is the database of a data folder: one SQLite file, state.db, in
// which every change of what Bailey keeps is a row before it is an act. Each kind
// of thing has a file with its rows and queries here, and its tables in a file of
// migrations/, which are applied in the order of their names and never changed
// once they have been released.
//
// Only baileyd links it. It touches state.db and its journal.
package state
