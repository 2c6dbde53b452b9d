package mountinfo

import (
	"bytes"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	in := `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 /sub\040folder /a\040b\011c\012d\134e\043f rw master:2 propagate_from:3 - tmpfs none\040x rw,size=1k

31 22 0:27 / /no rw - fuse.x - rw`
	got, err := Parse([]byte(in))
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	want := Mount{ID: 30, Root: "/sub folder", Point: "/a b\tc\nd\\e#f", FSType: "tmpfs", Source: "none x", Options: "rw,size=1k"}
	if got[1] != want || got[2].Source != "-" || got[0].Point != "/" {
		t.Fatalf("%+v", got)
	}
	for _, bad := range []string{
		"x\n", "22 1 254:0 / / rw,relatime shared:1\n", "22 1 254:0 / rel rw - ext4 /dev/vda rw\n", "1 2 3 4 / 6 7 8 9 10 11 -\n",
		"22 1 254:0 / / rw - ext4 /dev/vda\n", "a 1 254:0 / / rw - ext4 /dev/vda rw\n",
	} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
	if l, err := Self(); err != nil || len(l) == 0 {
		t.Fatal(l, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"))
	f.Add([]byte(`30 22 0:26 / /a\040b\0 rw - tmpfs \134 rw` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := Parse(text)
		if err != nil {
			return
		}
		if len(list) > bytes.Count(text, []byte("\n"))+1 {
			t.Fatal("more mounts than lines")
		}
		for _, m := range list {
			if !strings.HasPrefix(m.Point, "/") {
				t.Fatalf("%q", m.Point)
			}
		}
	})
}
