package pack

import "testing"

func TestLZ4(t *testing.T) {
	// A literal run, then a match that overlaps with itself, then literals.
	block := []byte{0x14, 'a', 1, 0, 0x20, 'b', 'c'}
	out, err := lz4Block(nil, block, 100)
	if err != nil || string(out) != "aaaaaaaaabc" {
		t.Errorf("%q, %v", out, err)
	}
	for _, bad := range [][]byte{{0xf0}, {0x10}, {0x14, 'a', 2, 0}, {0x14, 'a', 0, 0}, {0x14, 'a', 1}} {
		if out, err := lz4Block(nil, bad, 100); err == nil {
			t.Errorf("%x became %q", bad, out)
		}
	}
	if _, err := lz4Block(nil, block, 5); err == nil {
		t.Error("a bound was passed")
	}
}

func FuzzLZ4(f *testing.F) {
	f.Add([]byte{7, 0, 0, 0, 0x14, 'a', 1, 0, 0x20, 'b', 'c'})
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, _ := unpackLZ4(b); len(out) > maxKernel+8<<20 {
			t.Errorf("%d bytes", len(out))
		}
	})
}

func FuzzVmlinux(f *testing.F) {
	head := make([]byte, 0x300)
	copy(head[0x202:], "HdrS")
	head[0x1f1], head[0x24c] = 1, 16
	f.Add(head)
	f.Fuzz(func(t *testing.T, b []byte) { Vmlinux(b) })
}
