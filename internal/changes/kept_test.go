package changes

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// filled gives a value every field of which differs from its zero value and
// from its neighbours: a field that a list forgets does not come back.
func filled[T any](n *uint64) T {
	var v T
	fill(reflect.ValueOf(&v).Elem(), n)
	return v
}

func fill(v reflect.Value, n *uint64) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 17).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString("text \xff " + string(rune('a'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64, reflect.Uint32, reflect.Uint8:
		v.SetUint(*n % 251)
	default:
		panic(v.Type().String())
	}
}

func fullSet() *Set {
	n := uint64(0)
	set := &Set{Run: "aas6fclfiq", Roots: []folder.Root{filled[folder.Root](&n), {Path: "/b"}}}
	for i := range 2 {
		c := filled[Change](&n)
		c.Root = i
		set.Changes = append(set.Changes, c, Change{Path: "."})
	}
	return set
}

func fullList() *savedSnapshot {
	n := uint64(0)
	s := filled[savedSnapshot](&n)
	for i := range s.Files {
		s.Files[i].Root = i
	}
	return &s
}

func TestKeptListsComeBackWhole(t *testing.T) {
	var b bytes.Buffer
	set := fullSet()
	if err := encodeSet(&b, set); err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSet(bytes.NewReader(b.Bytes())); err != nil || !reflect.DeepEqual(got, set) {
		t.Errorf("%v\n%+v\nis not\n%+v", err, got, set)
	}
	for n := range b.Len() {
		if _, err := decodeSet(bytes.NewReader(b.Bytes()[:n])); err == nil {
			t.Fatalf("a set cut to %d of %d bytes was taken", n, b.Len())
		}
	}
	if _, err := decodeSet(bytes.NewReader(append(b.Bytes(), 0))); err == nil {
		t.Error("a set with something behind it was taken")
	}
	b.Reset()
	list := fullList()
	if err := encodeList(&b, list); err != nil {
		t.Fatal(err)
	}
	if got, err := decodeList(bytes.NewReader(b.Bytes())); err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("%v\n%+v\nis not\n%+v", err, got, list)
	}
	for n := range b.Len() {
		if _, err := decodeList(bytes.NewReader(b.Bytes()[:n])); err == nil {
			t.Fatalf("a list cut to %d of %d bytes was taken", n, b.Len())
		}
	}
}

func TestKeptListsNameNothingOutside(t *testing.T) {
	id := workspace.Identity{}
	for name, c := range map[string]Change{
		"root":   {Root: 1, Path: "a"},
		"path":   {Path: "../a"},
		"base":   {Path: "a", Base: -1},
		"size":   {Path: "a", Host: workspace.Identity{Size: -1}},
		"nobody": {Path: ""},
	} {
		var b bytes.Buffer
		if err := encodeSet(&b, &Set{Roots: []folder.Root{{}}, Changes: []Change{c}}); err != nil {
			t.Fatal(err)
		}
		if _, err := decodeSet(&b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	for name, e := range map[string]savedExec{"root": {1, "a", id, "1"}, "path": {0, "/a", id, "1"}, "copy": {0, "a", id, "../1"}} {
		var b bytes.Buffer
		if err := encodeList(&b, &savedSnapshot{Roots: []folder.Root{{}}, Hooks: []string{""}, Files: []savedExec{e}}); err != nil {
			t.Fatal(err)
		}
		if _, err := decodeList(&b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzDecodeSet(f *testing.F) {
	var b bytes.Buffer
	if err := encodeSet(&b, fullSet()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := decodeSet(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := encodeSet(&b, set); err != nil {
			t.Fatal(err)
		}
		if got, err := decodeSet(&b); err != nil || !reflect.DeepEqual(got, set) {
			t.Fatal("kept again, it is another one", err)
		}
	})
}

func FuzzDecodeList(f *testing.F) {
	var b bytes.Buffer
	if err := encodeList(&b, fullList()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := decodeList(bytes.NewReader(data)); err == nil {
			for _, e := range s.Files {
				if e.Root < 0 || e.Root >= len(s.Roots) || e.Root >= len(s.Hooks) {
					t.Fatal("it names a root that is not there")
				}
			}
		}
	})
}
