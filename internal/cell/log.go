package cell

import (
	"io"
	"os"
	"sync"
)

const (
	logBound  = 256 << 10 // bytes of the file: what comes first tells most
	tailBound = 4 << 10   // bytes of the end that are kept in memory
)

// boundedLog takes what the inner program writes to its standard error. Nobody who writes
// waits for it, and none of it is believed.
type boundedLog struct {
	f    *os.File // nil: nowhere, or full
	left int
	done chan struct{} // closed once nobody can write any more

	mu   sync.Mutex
	tail []byte
}

// newLog makes the log of a pipe, which it takes over. path may be "".
func newLog(path string, pipe *os.File) (*boundedLog, error) {
	l := &boundedLog{left: logBound, done: make(chan struct{})}
	if path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			pipe.Close()
			return nil, err
		}
		l.f = f
	}
	go func() {
		defer close(l.done)
		defer pipe.Close()
		io.Copy(l, pipe)
		if l.f != nil {
			l.f.Close()
		}
	}()
	return l, nil
}

// Write implements io.Writer. It does not fail.
func (l *boundedLog) Write(p []byte) (int, error) {
	if l.f != nil {
		n := min(len(p), l.left)
		l.f.Write(p[:n])
		if l.left -= n; l.left == 0 {
			l.f.WriteString("\n[the rest was left out]\n")
			l.f.Close()
			l.f = nil
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tail = append(l.tail, p[max(0, len(p)-tailBound):]...); len(l.tail) > tailBound {
		l.tail = append([]byte(nil), l.tail[len(l.tail)-tailBound:]...)
	}
	return len(p), nil
}

// last gives the end of what was written.
func (l *boundedLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.tail)
}
