package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// once runs one command by the library: from the request to the point where
// sandbox and record have gone again.
func (b *bench) once(ctx context.Context, req run.Request, want string) (v sample, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return v, err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		w.Close()
		return v, err
	}
	defer null.Close()
	type output struct {
		text  string
		first time.Duration
		err   error
	}
	read := make(chan output, 1)
	begin := time.Now()
	go func() {
		text, first, err := peer.ReadOutput(r, begin)
		read <- output{text, first, err}
	}()
	req.Streams = terminal.Streams{Out: w, Err: null}
	out, err := b.host.Do(ctx, req)
	if err == nil {
		b.phases.step("remove the record")
		err = b.host.Drop(out.Run)
	}
	b.phases.step("")
	v.Total = time.Since(begin)
	w.Close()
	// Files that nobody waits for are removed on every side when the clock has
	// stopped, and before anybody else's turn.
	err = errors.Join(err, b.host.Wait())
	got := <-read
	v.First = got.first
	switch {
	case err != nil:
		return v, err
	case got.err != nil:
		return v, got.err
	case out.End.Reason != bailey.EndExit || out.End.ExitCode != 0 || got.text != want:
		return v, fmt.Errorf("it ended as %+v and printed %q", out.End, got.text)
	}
	return v, nil
}

func (b *bench) ourFeatures(level bailey.Isolation, more ...string) []string {
	f := []string{"user, mount, pid, net, ipc, uts and cgroup namespaces", "system call filter", "memory and pids limit", "no capabilities, no_new_privs",
		"Landlock where the kernel has it", "workspace copy-on-write on the same disk"}
	if b.groups == nil {
		f[2] = "no memory limit, and pids by rlimit: this user can set none"
	}
	if level == bailey.IsolationContainer {
		f[3] = "11 capabilities, no_new_privs"
		f = append(f, "root file system as overlay on the same disk", "ids of its own")
	} else {
		f = append(f, "read-only /usr, parts of /etc, tool folders", "own HOME, /tmp, /proc, /dev")
	}
	return append(f, more...)
}
