package execlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// pumpDir names the variable that makes this program a pump: see child.
const pumpDir = "EXECLOG_PUMP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(pumpDir); dir != "" {
		child(dir)
	}
	os.Exit(m.Run())
}

// child is a daemon that dies: it pumps descriptor 3, or with five descriptors a
// terminal, says by a byte on its output that it has begun, and exits at the end.
func child(dir string) {
	l, err := Open(dir, 512<<20)
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	end := func() { close(done) }
	if os.Getenv(pumpDir+"_TERMINAL") != "" {
		err = l.PumpTerminal(os.NewFile(3, "master"), os.NewFile(4, "r"), os.NewFile(5, "w"), end)
	} else {
		err = l.Pump(Stdout, os.NewFile(3, "pipe"), end)
	}
	if err != nil {
		panic(err)
	}
	os.Stdout.Write([]byte{'.'})
	<-done
	os.Exit(0)
}

func open(t testing.TB, dir string, limit int64) *Log {
	t.Helper()
	l, err := Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// pattern fills p with what stands at offset at; no two places of 100 MB look alike.
func pattern(p []byte, at int64) {
	for i := range p {
		o := uint64(at + int64(i))
		p[i] = byte((o>>3)*0x9e3779b97f4a7c15>>(8*(o&7))) | 1
	}
}

// all reads what is kept of a stream.
func all(t testing.TB, l *Log, i Stream, from int64, each func(offset int64, p []byte)) (dropped int64) {
	t.Helper()
	r, err := l.Reader(i, from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := make([]byte, 100_000)
	for {
		n, offset, d, err := r.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		dropped += d
		if n == 0 {
			return dropped
		}
		each(offset, p[:n])
	}
}

// closed waits until a stream is at its end.
func closed(t testing.TB, l *Log, i Stream) Info {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		ch := l.Changed()
		if info := l.Info(i); info.Closed {
			return info
		}
		select {
		case <-ch:
		case <-limit:
			t.Fatal("the stream was not closed")
		}
	}
}

// killed pumps with processes that are killed at random moments until one gets to
// the end, and says how many were.
func killed(t *testing.T, dir string, terminal bool, files ...*os.File) (kills int) {
	t.Helper()
	for {
		cmd := exec.Command(os.Args[0])
		// The race detector holds a process a second at its exit, in which each
		// would be killed though it has done its work.
		cmd.Env = append(os.Environ(), pumpDir+"="+dir, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
		if terminal {
			cmd.Env = append(cmd.Env, pumpDir+"_TERMINAL=1")
		}
		cmd.ExtraFiles = files
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal("the pump did not begin: ", err, cmd.Wait())
		}
		// The moment is random: that is what is tested.
		kill := time.AfterFunc(time.Duration(rand.Intn(3000+100*kills))*time.Microsecond, func() { cmd.Process.Kill() })
		err = cmd.Wait()
		kill.Stop()
		if err == nil {
			return kills
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatal(err)
		}
		kills++
	}
}

// TestKilledAtRandom kills whoever pumps 100 MB again and again: each byte is
// there, once, in order.
func TestKilledAtRandom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	r, w := pipe(t)
	const size = 100 << 20
	want := sha256.New()
	go func() {
		defer w.Close()
		p := make([]byte, 100_000)
		for at := int64(0); at < size; {
			q := p[:min(int64(1+rand.Intn(len(p))), size-at)]
			pattern(q, at)
			want.Write(q)
			if _, err := w.Write(q); err != nil {
				return
			}
			at += int64(len(q))
		}
	}()
	kills := killed(t, dir, false, r)
	l := open(t, dir, 512<<20)
	got := sha256.New()
	n := int64(0)
	all(t, l, Stdout, 0, func(_ int64, p []byte) { got.Write(p); n += int64(len(p)) })
	t.Logf("%d pumps were killed", kills)
	if kills < 5 {
		t.Errorf("only %d pumps were killed", kills)
	}
	if n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d bytes of %d arrived, or others", n, size)
	}
}

// TestTerminalKilledAtRandom is the same through a terminal.
func TestTerminalKilledAtRandom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	raw(t, slave)
	r, w := pipe(t)
	const size = 8 << 20
	want := sha256.New()
	go func() {
		p := make([]byte, 5000)
		for at := int64(0); at < size; {
			q := p[:min(int64(1+rand.Intn(len(p))), size-at)]
			pattern(q, at)
			want.Write(q)
			if _, err := slave.Write(q); err != nil {
				return
			}
			at += int64(len(q))
		}
		slave.Close()
	}()
	kills := killed(t, dir, true, master, r, w)
	l := open(t, dir, 0)
	got := sha256.New()
	n := int64(0)
	all(t, l, Stdout, 0, func(_ int64, p []byte) { got.Write(p); n += int64(len(p)) })
	t.Logf("%d pumps were killed", kills)
	if kills < 2 {
		t.Errorf("only %d pumps were killed", kills)
	}
	if n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d bytes of %d arrived, or others", n, size)
	}
}

// raw makes a terminal pass bytes as they are.
func raw(t *testing.T, f *os.File) {
	t.Helper()
	rc, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := rc.Control(func(fd uintptr) {
		var m *unix.Termios
		if m, err = unix.IoctlGetTermios(int(fd), unix.TCGETS); err == nil {
			m.Oflag &^= unix.OPOST
			m.Lflag &^= unix.ECHO | unix.ICANON
			err = unix.IoctlSetTermios(int(fd), unix.TCSETS, m)
		}
	}); e != nil || err != nil {
		t.Fatal(e, err)
	}
}

func TestRotation(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "log"), MinCap)
	r, w := pipe(t)
	if err := l.Pump(Stderr, r, nil); err != nil {
		t.Fatal(err)
	}
	const size = 10*MinCap + 123
	p := make([]byte, size)
	pattern(p, 0)
	early, err := l.Reader(Stderr, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	w.Write(p)
	w.Close()
	info := closed(t, l, Stderr)
	if info.To != size || info.To-info.From > MinCap || info.To-info.From < MinCap*7/8-8<<10 {
		t.Errorf("%d to %d of %d bytes are kept within %d", info.From, info.To, size, MinCap)
	}
	for _, from := range []int64{0, info.From - 1, info.From, info.From + 1, size - 1, size} {
		at := max(from, info.From)
		dropped := all(t, l, Stderr, from, func(offset int64, q []byte) {
			if offset != at || !bytes.Equal(q, p[at:at+int64(len(q))]) {
				t.Fatalf("from %d: other bytes at %d", from, offset)
			}
			at += int64(len(q))
		})
		if at != size || dropped != max(from, info.From)-from {
			t.Errorf("from %d: read up to %d, %d dropped", from, at, dropped)
		}
	}
	if _, err := l.Reader(Stderr, size+1); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("an offset behind the end: %v", err)
	}
	again := open(t, l.dir, MinCap)
	if got := again.Info(Stderr); got != info {
		t.Errorf("a later process finds %+v, not %+v", got, info)
	}
	if n := again.Trim(); n != info.To-info.From {
		t.Errorf("%d bytes were dropped", n)
	}
	for _, l := range []*Log{again, open(t, l.dir, MinCap)} {
		if got := l.Info(Stderr); got != (Info{size, size, true}) {
			t.Errorf("after all was dropped: %+v", got)
		}
	}
}

// TestHole: what lies below a missing segment is not told as if it were next to
// what lies above.
func TestHole(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{
		segmentName("stdout", 0): 100, segmentName("stdout", 200): 10, segmentName("stdout", 210): 5,
		"stdout.xyz": 1, "stdout.00000000000000FF": 1, "stdout.-000000000000001": 1, "stderr": 3,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, dir, 0)
	if got := l.Info(Stdout); got != (Info{200, 215, true}) {
		t.Errorf("%+v", got)
	}
	if dropped := all(t, l, Stdout, 50, func(int64, []byte) {}); dropped != 150 {
		t.Errorf("%d dropped", dropped)
	}
}

// TestMark: what a process wrote before it ended lies below the mark, whoever
// else holds the pipe and goes on.
func TestMark(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		l := open(t, filepath.Join(t.TempDir(), "log"), 0)
		r, w := pipe(t)
		out := w
		if terminal {
			master, slave, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer slave.Close()
			raw(t, slave)
			out = slave
			if err := l.PumpTerminal(master, r, w, nil); err != nil {
				t.Fatal(err)
			}
		} else if err := l.Pump(Stdout, r, nil); err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for i := range 200 {
			cmd := exec.Command("printf", "%0*d", "3000", "7")
			cmd.Stdout = out
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			total += 3000
			if at := l.Mark(); at != [2]int64{total, 0} {
				t.Fatalf("terminal %v, %d: the mark is %d, not %d", terminal, i, at, total)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			if err := l.Reach(ctx, [2]int64{total, 0}); err != nil {
				t.Fatal(err)
			}
			cancel()
			if to := l.Info(Stdout).To; to != total {
				t.Fatalf("terminal %v: %d of %d are there", terminal, to, total)
			}
			if i == 20 && testing.Short() {
				break
			}
		}
	}
}

// TestSilentStreams: a thousand streams that wait need no thread, and are gone
// after Close.
func TestSilentStreams(t *testing.T) {
	before, threads := runtime.NumGoroutine(), threads(t)
	dir := t.TempDir()
	// Signals end system calls early, also those that do not wait.
	done := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				unix.Kill(os.Getpid(), unix.SIGURG)
			}
		}
	})
	var logs []*Log
	var writers []*os.File
	for i := range 500 {
		l, err := Open(filepath.Join(dir, string(rune('a'+i%26)), "x"), 0)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
		for s := range 2 {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			writers = append(writers, w)
			if err := l.Pump(Stream(s), r, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(done)
	storm.Wait()
	if n := threadsNow(t) - threads; n > 50 {
		t.Errorf("%d more threads", n)
	}
	if n := runtime.NumGoroutine() - before; n > 1000 {
		t.Errorf("%d more goroutines", n)
	}
	for _, l := range logs {
		l.Close()
	}
	for _, w := range writers {
		w.Close()
	}
	if n := runtime.NumGoroutine() - before; n > 5 {
		t.Errorf("%d goroutines are left", n)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("streams without a byte made %d folders", len(entries))
	}
}

func threads(t *testing.T) int { return threadsNow(t) }

func threadsNow(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

// TestDiskFull: what finds no room stays where it is, and goes on when there is.
func TestDiskFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // stands in the way
		t.Fatal(err)
	}
	l := &Log{dir: dir, stop: make(chan struct{})}
	for i := range l.streams {
		s := &l.streams[i]
		s.l, s.name, s.limit, s.segSize, s.fd, s.closed = l, names[i], DefaultCap, segmentSize(DefaultCap), -1, true
	}
	t.Cleanup(l.Close)
	r, w := pipe(t)
	if err := l.Pump(Stdout, r, nil); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("hello"))
	if at := l.Mark(); at[0] != 5 || l.Info(Stdout).To != 0 {
		t.Fatalf("%v, %+v", at, l.Info(Stdout))
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := l.Reach(ctx, [2]int64{5, 0}); err != nil {
		t.Fatal(err)
	}
	all(t, l, Stdout, 0, func(_ int64, p []byte) {
		if string(p) != "hello" {
			t.Errorf("%q", p)
		}
	})
}

// TestFollow: a reader that waits sees every byte while segments are dropped
// behind it, or is told what it missed.
func TestFollow(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "log"), MinCap)
	r, w := pipe(t)
	if err := l.Pump(Stdout, r, nil); err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20
	go func() {
		defer w.Close()
		p := make([]byte, 7777)
		for at := int64(0); at < size; at += int64(len(p)) {
			p = p[:min(int64(len(p)), size-at)]
			pattern(p, at)
			w.Write(p)
		}
	}()
	rd, err := l.Reader(Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	p, want := make([]byte, 3000), make([]byte, 3000)
	at := int64(0)
	for {
		ch := l.Changed()
		n, offset, dropped, err := rd.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		if at += dropped; offset != at {
			t.Fatalf("offset %d after %d", offset, at)
		}
		pattern(want[:n], at)
		if !bytes.Equal(p[:n], want[:n]) {
			t.Fatalf("other bytes at %d", at)
		}
		at += int64(n)
		if n == 0 {
			if info := l.Info(Stdout); info.Closed && at == info.To {
				break
			}
			<-ch
		}
	}
	if at != size {
		t.Errorf("%d of %d bytes", at, size)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, limit := range []int64{-1, MinCap - 1, MaxCap + 1} {
		if _, err := Open(t.TempDir(), limit); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%d: %v", limit, err)
		}
	}
}

func BenchmarkPump(b *testing.B) {
	l := open(b, filepath.Join(b.TempDir(), "log"), 64<<20)
	r, w := pipe(b)
	if err := l.Pump(Stdout, r, nil); err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 64<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		w.Write(p)
	}
	w.Close()
	closed(b, l, Stdout)
}
