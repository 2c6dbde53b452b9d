package audit

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// writerEnv has this test's program append to the log it names until it is killed.
const writerEnv = "BAILEY_TEST_AUDIT_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// writeUntilKilled prints the Seq and hash of each record that was acknowledged.
func writeUntilKilled(dir string) {
	l, err := Open(dir, Options{SegmentSize: 40 << 10})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var mu sync.Mutex
	for range 4 {
		go func() {
			for {
				r := act()
				if err := l.Append(r); err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Println(r.Seq, r.Hash)
				mu.Unlock()
			}
		}()
	}
	select {}
}

// Several processes append and are killed in the middle of it, again and again:
// one chain comes out, over many segments, and whatever was acknowledged is in it.
func TestKilledWriters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	acked := map[string]string{}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for round := range 4 {
				cmd := exec.Command(self)
				cmd.Env = append(os.Environ(), writerEnv+"="+dir)
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Error(err)
					return
				}
				lines := bufio.NewScanner(out)
				for n := 0; lines.Scan(); n++ {
					seq, hash, ok := strings.Cut(lines.Text(), " ")
					if !ok || len(hash) != 64 {
						if n < 150+50*round {
							t.Error(lines.Text())
						}
						break // its last line may be a piece
					}
					mu.Lock()
					acked[seq] = hash
					mu.Unlock()
					if n == 150+50*round {
						cmd.Process.Kill()
					}
				}
				cmd.Process.Kill()
				cmd.Wait()
			}
		})
	}
	group.Wait()
	// Whoever comes next mends what the last one left.
	if err := open(t, dir, Options{}).Append(act()); err != nil {
		t.Fatal(err)
	}
	segments := 0
	for _, r := range read(t, dir) {
		if h, ok := acked[fmt.Sprint(r.Seq)]; ok && h != r.Hash {
			t.Errorf("record %d is not the one that was acknowledged", r.Seq)
		}
		delete(acked, fmt.Sprint(r.Seq))
		switch {
		case r.Kind == KindRotate:
			segments++
		case r.Kind == KindGap && r.Gap.Why != GapTorn:
			t.Errorf("%+v", r.Gap)
		}
	}
	if len(acked) > 0 || segments < 5 {
		t.Errorf("%d acknowledged records are missing; %d segments", len(acked), segments)
	}
}

// A piece of a record at the end is cut off, and the log says so.
func TestTornEnd(t *testing.T) {
	for _, torn := range []string{"{", `{"seq":3,"time":"x`, strings.Repeat("x", 9000), "\x00\x00\x00"} {
		dir := t.TempDir()
		l := open(t, dir, Options{})
		for range 2 {
			if err := l.Append(act()); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.OpenFile(filepath.Join(dir, segmentName(1)), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(torn); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := l.Append(act()); err != nil {
			t.Fatal(err)
		}
		list := read(t, dir)
		sum := sha256.Sum256([]byte(torn))
		want := Gap{Why: GapTorn, Bytes: int64(len(torn)), Digest: hex.EncodeToString(sum[:])}
		if !slices.Equal(kinds(list), []string{"http", "http", KindGap, "http"}) || *list[2].Gap != want {
			t.Errorf("%q: %v", torn, kinds(list))
		}
	}
}

// A machine that went down while the log was in use leaves a gap, one that was
// stopped when all was on disk leaves none.
func TestPowerLoss(t *testing.T) {
	for _, lazy := range []bool{true, false} {
		dir := t.TempDir()
		l := open(t, dir, Options{Lazy: lazy})
		if err := l.Append(act()); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, dir, Options{})
		l.boot = "another"
		if err := l.Append(act()); err != nil {
			t.Fatal(err)
		}
		list := read(t, dir)
		if gap := slices.Contains(kinds(list), KindGap); gap != lazy {
			t.Errorf("lazy %v: %v", lazy, kinds(list))
		}
	}
}

// A log whose disk cannot be synced takes nothing more.
func TestSyncFails(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	synced := make(chan bool, 64)
	l.sync = func(*os.File) error { synced <- true; return unix.EIO }
	if err := l.Append(act()); err != nil {
		t.Fatal(err)
	}
	<-synced
	deadline := time.Now().Add(30 * time.Second)
	for l.Append(act()) == nil && time.Now().Before(deadline) {
	}
	err := l.Append(act())
	if bailey.CodeOf(err) != bailey.CodeAudit || !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
	if err := l.Close(); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
}

// A full disk refuses, and nothing of what was refused is in the log; with room
// again it goes on.
func TestFullDisk(t *testing.T) {
	testneeds.Root(t, "mounting a small file system")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	log := filepath.Join(dir, "audit")
	l := open(t, log, Options{})
	fill := filepath.Join(dir, "fill")
	if err := l.Append(act()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fill, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	acked := 1
	var err error
	for range 10_000 {
		if err = l.Append(act()); err != nil {
			break
		}
		acked++
	}
	if bailey.CodeOf(err) != bailey.CodeAudit || !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if n := len(read(t, log)); n != acked {
		t.Errorf("%d records, %d acknowledged", n, acked)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(act()); err != nil {
		t.Fatal(err)
	}
	if n := len(read(t, log)); n != acked+1 {
		t.Errorf("%d records, %d acknowledged", n, acked+1)
	}
}

// The gate gives the log to its own user; what root makes in it later is that
// user's too.
func TestLogOfAnotherUser(t *testing.T) {
	testneeds.Root(t, "giving files to another user")
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, Options{SegmentSize: 1})
	if err := l.Append(act()); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{dir}
	for _, e := range made {
		names = append(names, filepath.Join(dir, e.Name()))
	}
	for _, n := range names {
		if err := os.Lchown(n, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range []*Log{l, open(t, dir, Options{SegmentSize: 1}), l} {
		if err := w.Append(act()); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= len(made) {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, e.Name()), &st); err != nil || st.Uid != 65534 || st.Mode&0o777 != 0o600 {
			t.Errorf("%s: %d %o %v", e.Name(), st.Uid, st.Mode, err)
		}
	}
	read(t, dir)
}

func FuzzParse(f *testing.F) {
	line, _ := appendRecord(nil, 7, time.Unix(1, 0), appendMiddle(nil, act()), digest{})
	f.Add(line[:len(line)-1])
	f.Add([]byte(`{"seq":1,"time":"`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if err != nil {
			return
		}
		// What is taken has the hash of its bytes: another byte, another hash.
		line = slices.Clone(line) // the fuzzer keeps its own
		line[len(line)/2] ^= 1
		if r.Seq < 1 || len(r.Hash) != 64 {
			t.Errorf("%+v", r)
		}
		if _, err := Parse(line); err == nil {
			t.Error("a changed line was taken")
		}
	})
}
