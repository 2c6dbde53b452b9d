package gatebench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// child is a program that the bench started.
type child struct {
	cmd  *exec.Cmd
	said *os.File // what it printed on its standard error
	done chan struct{}
}

// start starts a program. It ends with stop, and with this process.
func start(dir string, cmd *exec.Cmd) (*child, error) {
	said, err := os.CreateTemp(dir, "said-")
	if err != nil {
		return nil, err
	}
	cmd.Stderr = said
	if cmd.Stdout == nil {
		cmd.Stdout = said
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // an interrupt is for the bench, which ends them
	if err := cmd.Start(); err != nil {
		said.Close()
		return nil, err
	}
	c := &child{cmd: cmd, said: said, done: make(chan struct{})}
	go func() {
		cmd.Wait() // how it ended is told by what it said
		close(c.done)
	}()
	return c, nil
}

// stop ends the program and waits for it.
func (c *child) stop() {
	if c == nil {
		return
	}
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(2 * time.Second):
		c.cmd.Process.Kill()
		<-c.done
	}
	c.said.Close()
}

// words gives the end of what it said.
func (c *child) words() string {
	b, _ := os.ReadFile(c.said.Name())
	return string(b[max(0, len(b)-500):])
}

// until waits until the program is ready, with an end of the wait.
func (c *child) until(ctx context.Context, what string, ready func() bool) error {
	late := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.done:
			return fmt.Errorf("it ended before %s: %s", what, c.words())
		case <-late:
			return fmt.Errorf("30 s were not enough until %s: %s", what, c.words())
		}
	}
	return nil
}

// Servant is a part of the bench that runs as a process of its own: it reads one
// JSON value from in, begins, writes one to out, and serves until in ends.
func Servant(name string, in io.Reader, out io.Writer) error {
	serve := servants[name]
	if serve == nil {
		return fmt.Errorf("there is no part %q", name)
	}
	d := json.NewDecoder(bufio.NewReader(in))
	begun, err := serve(d)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(begun); err != nil {
		return err
	}
	var more json.RawMessage
	if err := d.Decode(&more); err != io.EOF {
		return fmt.Errorf("more was said than is understood: %w", err)
	}
	return nil
}

var servants = map[string]func(*json.Decoder) (any, error){"origin": serveOrigin, "reverse": serveReverse}

// servant starts one. Its standard input ends with this process, and so does it.
func (b *bench) servant(name string, config, begun any) (*child, error) {
	cmd := exec.Command(b.self, "bench", name)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.Stdout = w
	c, err := start(b.opt.Dir, cmd)
	w.Close()
	if err != nil {
		return nil, err
	}
	b.children = append(b.children, c)
	if err := json.NewEncoder(in).Encode(config); err != nil {
		return nil, fmt.Errorf("%w: %s", err, c.words())
	}
	if err := json.NewDecoder(r).Decode(begun); err != nil {
		return nil, fmt.Errorf("%w: %s", err, c.words())
	}
	return c, nil
}
