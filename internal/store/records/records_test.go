package records

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func written(t testing.TB, fill func(*Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	fill(w)
	if err := errors.Join(w.End(), w.Flush()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	long := strings.Repeat("a\x00\xff", 200) // its length takes two bytes
	data := written(t, func(w *Writer) {
		w.Uint(math.MaxUint64)
		w.Int(math.MinInt64)
		w.Bool(true)
		w.String(long)
		w.Raw([]byte{1, 2, 3})
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		w.Uint(2)
		w.Bool(false)
		w.Bool(true)
	})
	r := NewReader(bytes.NewReader(data))
	if err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if r.Uint() != math.MaxUint64 || r.Int() != math.MinInt64 || !r.Bool() || r.String() != long || !bytes.Equal(r.Raw(3), []byte{1, 2, 3}) || r.End() != nil {
		t.Error("the first record is another one")
	}
	if err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if r.Count() != 2 || r.Bool() || !r.Bool() || r.End() != nil {
		t.Error("the second record is another one")
	}
	if err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for n := range data {
		r := NewReader(bytes.NewReader(data[:n]))
		for err := r.Next(); err != io.EOF; err = r.Next() {
			if err == io.ErrUnexpectedEOF {
				break
			} else if err != nil {
				t.Fatalf("cut to %d bytes: %v", n, err)
			}
		}
	}
}

func TestDamage(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		read func(*Reader)
	}{
		"too long":          {[]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, nil},
		"length overflows":  {bytes.Repeat([]byte{0xff}, 12), nil},
		"something is left": {[]byte{2, 1, 1}, func(r *Reader) { r.Uint() }},
		"something lacks":   {[]byte{1, 1}, func(r *Reader) { r.Uint(); r.Uint() }},
		"text lacks":        {[]byte{2, 9, 'a'}, func(r *Reader) { _ = r.String() }},
		"count too large":   {[]byte{2, 200, 1}, func(r *Reader) { r.Count() }},
		"no truth value":    {[]byte{1, 2}, func(r *Reader) { r.Bool() }},
		"endless number":    {[]byte{2, 0x80, 0x80}, func(r *Reader) { r.Int() }},
	} {
		r := NewReader(bytes.NewReader(c.data))
		err := r.Next()
		if c.read != nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			c.read(r)
			err = r.End()
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want %v", name, err, ErrDamaged)
		}
	}
	w := NewWriter(io.Discard)
	w.Raw(make([]byte, MaxRecord+1))
	if w.End() == nil {
		t.Error("a record that no Reader takes was written")
	}
}

// FuzzReader: what is read without an error is what was written, and nothing
// is given that the input does not hold.
func FuzzReader(f *testing.F) {
	f.Add(written(f, func(w *Writer) {
		w.Uint(300)
		w.Int(-1)
		w.Bool(true)
		w.String("text")
		w.Uint(1)
		w.Raw([]byte{7})
	}))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		for r.Next() == nil {
			u, i, b, s := r.Uint(), r.Int(), r.Bool(), r.String()
			raw := append([]byte(nil), r.Raw(uint64(r.Count()))...)
			if len(s)+len(raw) > len(data) {
				t.Fatal("more than there is")
			}
			if r.End() != nil {
				continue
			}
			again := NewReader(bytes.NewReader(written(t, func(w *Writer) {
				w.Uint(u)
				w.Int(i)
				w.Bool(b)
				w.String(s)
				w.Uint(uint64(len(raw)))
				w.Raw(raw)
			})))
			if again.Next() != nil || again.Uint() != u || again.Int() != i || again.Bool() != b || again.String() != s ||
				!bytes.Equal(again.Raw(uint64(again.Count())), raw) || again.End() != nil {
				t.Fatal("written again, it is another one")
			}
		}
	})
}
