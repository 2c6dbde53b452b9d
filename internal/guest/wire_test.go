package guest

import (
	"bytes"
	"errors"
	"testing"
)

// decodeAll gives what a decoder makes of b in pieces of size n, as text.
func decodeAll(b []byte, n int) string {
	var out bytes.Buffer
	d := newDecoder(1 << 16)
	d.onReset = func() { out.WriteString("reset;") }
	d.onLost = func(string) { out.WriteString("lost;") }
	d.onFrame = func(f frame) error {
		out.WriteByte(byte('a' + f.typ%26))
		out.Write(f.payload)
		out.WriteByte(';')
		if f.typ == 99 {
			return errors.New("refused")
		}
		return nil
	}
	for len(b) > 0 {
		k := min(n, len(b))
		d.feed(b[:k])
		b = b[k:]
	}
	return out.String()
}

func testFrame(typ frameType, payload []byte) []byte {
	return endFrame(append(beginFrame(nil, typ, 0, 7), payload...), 0)
}

func TestFrames(t *testing.T) {
	m, s := string(mark[:]), string([]byte{markStuffed})
	payloads := []string{"", "x", m, m + m, m + s, m + m[:7], m[:4] + m, m + "\x01", "x" + m[:7], m[:1]}
	var stream bytes.Buffer
	want := "reset;"
	stream.WriteString("what an earlier conversation left" + m[:3])
	stream.Write(appendReset(nil))
	for i, p := range payloads {
		stream.Write(testFrame(frameType(i), []byte(p)))
		want += string(rune('a'+i)) + p + ";"
	}
	stream.Write(appendReset(nil))
	stream.Write(testFrame(1, []byte("end")))
	want += "reset;bend;"
	for n := 1; n < 40; n++ {
		if got := decodeAll(stream.Bytes(), n); got != want {
			t.Fatalf("in pieces of %d: %q, want %q", n, got, want)
		}
	}
}

// A frame cut off anywhere, then a reset: what comes after it is right.
func TestCutAnywhere(t *testing.T) {
	whole := testFrame(5, append([]byte("payload"), append(mark[:], mark[:]...)...))
	reset := appendReset(nil)
	for cut := range whole {
		for cut2 := range len(reset) { // and a reset cut off as well
			b := append(append([]byte(nil), reset...), whole[:cut]...)
			b = append(append(b, reset[:cut2]...), reset...)
			b = append(b, testFrame(1, []byte("good"))...)
			for _, n := range []int{1, 3, 1000} {
				got := decodeAll(b, n)
				if !bytes.HasSuffix([]byte(got), []byte("reset;bgood;")) || bytes.Count([]byte(got), []byte("good")) != 1 {
					t.Fatalf("cut at %d and %d, pieces of %d: %q", cut, cut2, n, got)
				}
			}
		}
	}
}

func TestDecoderRefuses(t *testing.T) {
	good := testFrame(1, []byte("x"))
	for name, change := range map[string]func([]byte){
		"start":    func(b []byte) { b[0]++ },
		"reserved": func(b []byte) { b[3] = 1 },
		"nfds":     func(b []byte) { b[2] = maxFrameFDs + 1 },
		"length":   func(b []byte) { b[10] = 2 },
		"negative": func(b []byte) { b[11] = 0xff },
		"refused":  func(b []byte) { b[1] = 99 },
	} {
		b := append([]byte(nil), good...)
		change(b)
		got := decodeAll(append(append(append(appendReset(nil), b...), good...), append(appendReset(nil), good...)...), 5)
		want := "reset;lost;reset;bx;"
		if name == "refused" {
			want = "reset;vx;lost;reset;bx;"
		}
		if got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, tc := range []struct {
		current, peer uint16
		ok            bool
	}{{1, 1, true}, {1, 0, false}, {1, 2, false}, {3, 1, true}, {4, 1, false}, {4, 2, true}, {4, 5, false}, {65535, 0, false}} {
		if acceptsVersion(tc.current, tc.peer) != tc.ok {
			t.Errorf("%+v", tc)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(append(appendReset(nil), testFrame(1, mark[:])...), 3)
	f.Add(append(mark[:], 2), 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		n = 1 + n&0xff
		if a, z := decodeAll(b, n), decodeAll(b, 1); a != z {
			t.Fatalf("pieces of %d give %q, of 1 %q", n, a, z)
		}
		// What is sent comes out again.
		got := decodeAll(append(appendReset(nil), testFrame(1, b[:min(len(b), 1<<16)])...), n)
		if got != "reset;b"+string(b[:min(len(b), 1<<16)])+";" {
			t.Fatalf("%q became %q", b, got)
		}
	})
}

// FuzzMessages parses b as every message there is, and what can be parsed must
// come out of put again as it went in.
func FuzzMessages(f *testing.F) {
	code := ExecEnd{ExitCode: 3, Output: [2]int64{5, -1}}
	u := &User{1, 2, []uint32{3}}
	for _, put := range []func([]byte) []byte{
		hello{1, 3, 0}.put, attachMsg{id: "a", offsets: [2]int64{1, 2}}.put, signalMsg{"a", 9, 1}.put, resizeMsg{"a", Window{1, 2, 3, 4}}.put,
		(&execMsg{id: "a", argv: []string{"x"}, env: []string{"A=b"}, dir: "/", user: u, rlimits: []Rlimit{{1, 2, 3}}}).put,
		(&execReply{pid: 4, state: StateEnded, end: &code}).put, (&bytesMsg{id: "a", stream: 1, data: []byte("x")}).put,
		ackMsg{id: "a", stream: 1, offset: 3}.put, (&eventMsg{"a", EventEnded, 0, &code}).put, (&failMsg{failErrno, 2, "s", "t"}).put,
		(&fileMsg{op: opRead, path: "/x", user: u}).put,
		func(b []byte) []byte { return putInfo(b, &FileInfo{Name: "n", Size: 1}) },
		func(b []byte) []byte { return putWritten(b, Written{Size: 1}) },
		func(b []byte) []byte { return putWatch(b, WatchEvent{1, "p"}) },
		func(b []byte) []byte { return putProcess(b, &ProcessInfo{Pid: 1, Command: "c"}) },
		func(b []byte) []byte { return putStatus(b, &ExecStatus{ID: "a", State: StateEnded, End: &code}) },
	} {
		f.Add(put(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(name string, err error, put func([]byte) []byte) {
			if err == nil && !bytes.Equal(put(nil), b) {
				t.Errorf("%s: %x became %x", name, b, put(nil))
			}
		}
		{
			m, err := parseHello(b)
			same("hello", err, m.put)
		}
		{
			m, err := parseAttach(b, 0)
			same("attach", err, m.put)
		}
		{
			m, err := parseSignal(b)
			same("signal", err, m.put)
		}
		{
			m, err := parseResize(b)
			same("resize", err, m.put)
		}
		{
			m, err := parseExec(b)
			same("exec", err, m.put)
		}
		{
			m, err := parseExecReply(b, Version)
			same("reply", err, m.put)
		}
		{
			m, err := parseBytes(b)
			same("bytes", err, m.put)
		}
		{
			m, err := parseAck(b)
			same("ack", err, m.put)
		}
		{
			m, err := parseEvent(b)
			same("event", err, m.put)
		}
		{
			m, err := parseFail(b)
			same("fail", err, m.put)
		}
		{
			m, err := parseFile(b)
			same("file", err, m.put)
		}
		{
			m, err := parseWritten(b)
			same("written", err, func(b []byte) []byte { return putWritten(b, m) })
		}
		{
			id, err := parseID(b)
			same("id", err, func(b []byte) []byte { return putStr(b, id) })
		}
		r := reader{b: b}
		s := r.status()
		same("status", r.done(), func(b []byte) []byte { return putStatus(b, &s) })
		r = reader{b: b}
		p := r.process()
		same("process", r.done(), func(b []byte) []byte { return putProcess(b, &p) })
		r = reader{b: b}
		w := r.watch()
		same("watch", r.done(), func(b []byte) []byte { return putWatch(b, w) })
		r = reader{b: b}
		r.info()
		parseCredit(b)
		parseU64(b)
	})
}
