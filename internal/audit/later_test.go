package audit

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// What nobody waits for is in the log in the order in which it came, before the
// next record that somebody waits for, and without one a little later.
func TestLater(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for i := range 3 {
		l.Later(&Record{Kind: KindEnd, Of: int64(i + 1)})
	}
	last := &Record{Kind: "http"}
	if err := l.Append(last); err != nil || last.Seq != 4 {
		t.Fatalf("%d, %v", last.Seq, err)
	}
	l.Later(&Record{Kind: KindEnd, Of: 4})
	for begin := time.Now(); len(read(t, dir)) < 5; {
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("it did not come: %v", read(t, dir))
		}
		time.Sleep(time.Millisecond)
	}
	l.Later(&Record{Kind: KindEnd, Of: 5})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	list := read(t, dir)
	if len(list) != 6 {
		t.Fatalf("%d records", len(list))
	}
	for i, r := range list {
		if r.Seq != int64(i+1) || i == 3 && r.Kind != "http" || i != 3 && r.Of != []int64{1, 2, 3, 0, 4, 5}[i] {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

// Many at once of both kinds are one chain, and none is missing.
func TestLaterTogether(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	const writers, each = 16, 200
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				r := &Record{Kind: "http", Sandbox: fmt.Sprint(w)}
				if err := l.Append(r); err != nil {
					t.Error(err)
					return
				}
				for range i % 4 {
					l.Later(&Record{Kind: KindEnd, Sandbox: fmt.Sprint(w), Of: r.Seq})
				}
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ends := 0
	kinds := map[int64]string{}
	for i, r := range read(t, dir) {
		if r.Seq != int64(i+1) {
			t.Fatalf("%d has the number %d", i, r.Seq)
		}
		kinds[r.Seq] = r.Kind + r.Sandbox
		if r.Kind == KindEnd {
			if ends++; kinds[r.Of] != "http"+r.Sandbox {
				t.Errorf("%d is the end of %q", r.Seq, kinds[r.Of])
			}
		}
	}
	if want := writers * each * 6 / 4; ends != want || len(kinds) != want+writers*each {
		t.Errorf("%d ends of %d, %d records", ends, want, len(kinds))
	}
}

// What cannot be written is kept until it can. It is not too much, and not for
// ever: then the log takes nothing more.
func TestLaterFails(t *testing.T) {
	for _, many := range []int{maxLater + 1, maxKept + 1} {
		dir := t.TempDir()
		l := open(t, dir, Options{})
		if err := l.Append(&Record{Kind: "http"}); err != nil {
			t.Fatal(err)
		}
		bad, err := os.Open(os.DevNull) // has another size, and no records
		if err != nil {
			t.Fatal(err)
		}
		defer bad.Close()
		l.write.Lock()
		good, at := l.tail.file, l.tail
		l.tail.file, l.tail.first = bad, 9
		l.write.Unlock()
		for range many {
			l.Later(&Record{Kind: KindEnd, Of: 1})
		}
		if err := l.Append(&Record{Kind: "http"}); err == nil {
			t.Error("a record was written to nowhere")
		}
		l.write.Lock()
		l.tail = at
		l.tail.file = good
		l.write.Unlock()
		err = l.Append(&Record{Kind: "http"})
		n := len(read(t, dir))
		if many <= maxKept {
			if err != nil || n != many+2 {
				t.Errorf("%v, %d records of %d", err, n, many+2)
			}
		} else if err == nil {
			t.Error("it goes on without its records")
		}
	}
}
