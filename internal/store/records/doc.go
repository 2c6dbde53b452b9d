// Package records is the form of the lists that Bailey keeps beside a run and
// reads back itself: what was copied, what changed, what is to be taken back.
// A file is a sequence of records; a record is its length and its fields, one
// after the other, without names or types. Who writes them puts a version first
// and an end last.
//
// Numbers are varints as in encoding/binary, texts and bytes have their length in
// front. It takes the place of encoding/gob, whose start-up every call of the
// program would pay for. The package touches nothing but the reader or writer
// it is given, and allocates no more than a record of MaxRecord bytes, whatever it reads.
package records
