package records

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// MaxRecord is the most that one record may have, in bytes.
const MaxRecord = 1 << 20

// ErrDamaged says that a record is not one that a Writer has written.
var ErrDamaged = errors.New("the record is damaged")

// Writer writes records: the fields of one, and then End.
type Writer struct {
	w *bufio.Writer
	b []byte
}

// NewWriter makes a Writer. What it has written has reached w after Flush.
func NewWriter(w io.Writer) *Writer { return &Writer{w: bufio.NewWriterSize(w, 1<<16)} }

// Uint appends a number to the record.
func (w *Writer) Uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

// Int appends a number that may be negative.
func (w *Writer) Int(v int64) { w.b = binary.AppendVarint(w.b, v) }

// Bool appends a truth value.
func (w *Writer) Bool(v bool) {
	var n byte
	if v {
		n = 1
	}
	w.b = append(w.b, n)
}

// String appends a text of any bytes.
func (w *Writer) String(v string) {
	w.Uint(uint64(len(v)))
	w.b = append(w.b, v...)
}

// Raw appends bytes whose number the reader knows.
func (w *Writer) Raw(v []byte) { w.b = append(w.b, v...) }

// End writes the record. One of more than MaxRecord bytes is an error.
func (w *Writer) End() error {
	if len(w.b) > MaxRecord {
		return errors.New("the record is too long to be kept")
	}
	var size [binary.MaxVarintLen64]byte
	_, err := w.w.Write(size[:binary.PutUvarint(size[:], uint64(len(w.b)))])
	if err == nil {
		_, err = w.w.Write(w.b)
	}
	w.b = w.b[:0]
	return err
}

// Flush hands over what is still buffered.
func (w *Writer) Flush() error { return w.w.Flush() }

// Reader reads what a Writer has written: Next, the fields of a record in the
// order in which they were written, and then End. What a field's method gives
// means something only if End gives no error.
type Reader struct {
	r   *bufio.Reader
	buf []byte
	b   []byte
	bad bool
}

// NewReader makes a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 1<<16)} }

// Next takes the next record up. It gives io.EOF where the input ends between
// two records, io.ErrUnexpectedEOF where it ends in one, and ErrDamaged.
func (r *Reader) Next() error {
	r.bad, r.b = false, nil
	if _, err := r.r.Peek(1); err != nil {
		return err
	}
	size, err := binary.ReadUvarint(r.r)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return io.ErrUnexpectedEOF
	}
	if err != nil || size > MaxRecord {
		return ErrDamaged
	}
	if uint64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	r.b = r.buf[:size]
	if _, err := io.ReadFull(r.r, r.b); err != nil {
		r.b = nil
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// Uint gives a field that Writer.Uint wrote.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.b)
	return took(r, v, n)
}

// Int gives a field that Writer.Int wrote.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.b)
	return took(r, v, n)
}

func took[T uint64 | int64](r *Reader, v T, n int) T {
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Bool gives a field that Writer.Bool wrote.
func (r *Reader) Bool() bool {
	b := r.Raw(1)
	if len(b) == 1 && b[0] > 1 {
		r.bad = true
	}
	return len(b) == 1 && b[0] == 1
}

// String gives a field that Writer.String wrote.
func (r *Reader) String() string { return string(r.Raw(r.Uint())) }

// Raw gives n bytes that Writer.Raw wrote, until the next Next; nil where there
// are fewer.
func (r *Reader) Raw(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

// Count gives the number of things that follow, each of which takes a byte at
// least: a number that is larger than what is left is damage, not a reason to
// make room for it.
func (r *Reader) Count() int {
	n := r.Uint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return 0
	}
	return int(n)
}

// End gives ErrDamaged unless all fields were there and nothing else.
func (r *Reader) End() error {
	if r.bad || len(r.b) > 0 {
		return ErrDamaged
	}
	return nil
}
