package monitor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fake is a monitor that answers each line with what a function gives.
func fake(t *testing.T, answer func(line string) string) *os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "fake")
	t.Cleanup(func() { theirs.Close() })
	go func() {
		io.WriteString(theirs, `{"QMP": {"version": {}}}`+"\r\n")
		for lines := bufio.NewScanner(theirs); lines.Scan(); {
			io.WriteString(theirs, answer(lines.Text()))
		}
	}()
	return os.NewFile(uintptr(fds[0]), "monitor")
}

// idOf takes the id out of a request as this package writes it.
func idOf(line string) (id int) {
	_, rest, _ := strings.Cut(line, `"id":`)
	fmt.Sscanf(rest, "%d", &id)
	return id
}

func TestConversation(t *testing.T) {
	f := fake(t, func(line string) string {
		id := idOf(line)
		switch {
		case strings.Contains(line, "refused"):
			return fmt.Sprintf(`{"id": %d, "error": {"class": "GenericError", "desc": "no"}}`+"\r\n", id)
		case strings.Contains(line, "silent"):
			return ""
		}
		return fmt.Sprintf(`{"event": "MIGRATION", "data": {"status": "completed"}}`+"\n"+`{"return": {"x": 1}, "id": %d}`+"\n", id)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m, err := New(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if b, err := m.Do(ctx, "good", nil); err != nil || string(b) != `{"x": 1}` {
		t.Errorf("%s %v", b, err)
	}
	var failed *Failure
	if _, err := m.Do(ctx, "refused", nil); !errors.As(err, &failed) || failed.Desc != "no" {
		t.Error(err)
	}
	if e, err := m.Await(ctx, "MIGRATION failed", "MIGRATION completed"); err != nil || e != "MIGRATION completed" {
		t.Error(e, err)
	}
	short, cancelShort := context.WithTimeout(ctx, time.Millisecond)
	defer cancelShort()
	if _, err := m.Do(short, "silent", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := m.Do(ctx, "good", nil); err != nil {
		t.Error(err)
	}
}

func TestNonsenseEndsIt(t *testing.T) {
	for _, said := range []string{"what\n", "{}\n", `{"return": {}, "id": 99}` + "\n", strings.Repeat("x", maxLine+2)} {
		f := fake(t, func(line string) string {
			if strings.Contains(line, "qmp_capabilities") {
				return fmt.Sprintf(`{"return": {}, "id": %d}`+"\n", idOf(line))
			}
			return said
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		m, err := New(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Do(ctx, "x", nil); !errors.Is(err, errMessage) {
			t.Errorf("%.20q: %v", said, err)
		}
		m.Close()
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"QMP": {}}` + "\n" + `{"return": {}, "id": 1}` + "\n" + `{"event": "STOP"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &Monitor{waiting: map[int]chan reply{1: make(chan reply, 1), 2: make(chan reply, 1)}, heard: make(chan struct{})}
		m.read(bytes.NewReader(b))
		if m.err == nil || len(m.waiting) != 0 || len(m.events) > maxEvents {
			t.Errorf("%v, %d wait, %d events", m.err, len(m.waiting), len(m.events))
		}
	})
}
