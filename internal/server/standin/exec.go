package standin

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

// exec is a command. Its output is all kept.
type exec struct {
	api.Exec
	out, err []byte
	in       []byte
	eof      bool
	window   api.Window
	step     func() // does what can be done now; mu is held
}

func (x *exec) end(end bailey.End) {
	if x.State == api.ExecEnded {
		return
	}
	t := now()
	x.State, x.End, x.ExitCode, x.Ended = api.ExecEnded, &end, &end.ExitCode, &t
	x.Stdout = api.StreamInfo{To: int64(len(x.out)), Closed: true}
	x.Stderr = api.StreamInfo{To: int64(len(x.err)), Closed: true}
}

func (x *exec) kill(signal string) {
	x.end(bailey.End{Reason: bailey.EndSignal, Signal: signal, ExitCode: 128 + 15})
}

// StartExec knows these commands: echo WORDS, fail STATUS, bytes N (the byte 0 to
// 255 over and over), cat (its input, until that ends), window (what it is resized
// to, line by line), sleep (until a signal), both (a line on each stream).
func (e *Engine) StartExec(ctx context.Context, who engine.Caller, ref string, spec api.ExecSpec) (api.Exec, error) {
	leave, err := e.enter("StartExec", ref, spec.ID)
	if err != nil {
		return api.Exec{}, err
	}
	defer leave()
	b, err := e.find(who, ref)
	if err != nil {
		return api.Exec{}, err
	}
	for _, x := range b.execs {
		if x.ID == spec.ID {
			return x.Exec, nil
		}
	}
	if b.State == api.StateEnded {
		return api.Exec{}, bailey.Errorf(bailey.CodeSandboxEnded, "run a command", "", "the sandbox is gone")
	}
	if spec.Generation != 0 && spec.Generation != b.Generation {
		err := bailey.Errorf(bailey.CodeSandboxRestarted, "run a command", "accept it", "its generation is %d", b.Generation)
		err.Generation = b.Generation
		return api.Exec{}, err
	}
	e.touched++
	if spec.ID == "" {
		spec.ID = fmt.Sprintf("x%d", len(b.execs)+1)
	}
	x := &exec{Exec: api.Exec{ID: spec.ID, Sandbox: b.ID, Generation: b.Generation, Args: spec.Args, Pty: spec.Pty != nil, State: api.ExecRunning, Pid: 2, Started: now()}, step: func() {}}
	b.execs = append(b.execs, x)
	name, args := "", []string(nil)
	if len(spec.Args) > 0 {
		name, args = spec.Args[0], spec.Args[1:]
	}
	number := 0
	if len(args) > 0 {
		number, _ = strconv.Atoi(args[0]) // words are 0
	}
	switch name {
	case "echo":
		x.out = []byte(strings.Join(args, " ") + "\n")
		x.end(bailey.End{Reason: bailey.EndExit})
	case "both":
		x.out, x.err = []byte("out\n"), []byte("err\n")
		x.end(bailey.End{Reason: bailey.EndExit})
	case "fail":
		x.end(bailey.End{Reason: bailey.EndExit, ExitCode: number})
	case "bytes":
		x.out = pattern(number)
		x.end(bailey.End{Reason: bailey.EndExit})
	case "cat":
		x.eof = !spec.Stdin && spec.Pty == nil
		x.step = func() {
			x.out, x.in = append(x.out, x.in...), nil
			if x.eof {
				x.end(bailey.End{Reason: bailey.EndExit})
			}
		}
	case "window":
		x.step = func() {
			if x.window != (api.Window{}) {
				x.out = fmt.Appendf(x.out, "%dx%d\n", x.window.Rows, x.window.Cols)
				x.window = api.Window{}
			}
			if x.eof {
				x.end(bailey.End{Reason: bailey.EndExit})
			}
		}
	case "sleep":
	default:
		x.end(bailey.End{Reason: bailey.EndNotStarted, ExitCode: 127, Detail: "there is no " + name})
	}
	x.step()
	e.change()
	return x.Exec, nil
}

func pattern(n int) []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return bytes.Repeat(all, n/256+1)[:n]
}

func (e *Engine) exec(who engine.Caller, ref, id string) (*exec, error) {
	b, err := e.find(who, ref)
	if err != nil {
		return nil, err
	}
	for _, x := range b.execs {
		if x.ID == id {
			return x, nil
		}
	}
	return nil, bailey.Errorf(bailey.CodeNotFound, "find the exec "+id, "", "there is none")
}

func (e *Engine) Exec(ctx context.Context, who engine.Caller, ref, id string) (api.Exec, error) {
	leave, err := e.enter("Exec")
	if err != nil {
		return api.Exec{}, err
	}
	defer leave()
	x, err := e.exec(who, ref, id)
	if err != nil {
		return api.Exec{}, err
	}
	return x.Exec, nil
}

func (e *Engine) Execs(ctx context.Context, who engine.Caller, ref string) (list []api.Exec, err error) {
	leave, err := e.enter("Execs")
	if err != nil {
		return nil, err
	}
	defer leave()
	b, err := e.find(who, ref)
	if err != nil {
		return nil, err
	}
	for _, x := range b.execs {
		list = append(list, x.Exec)
	}
	return list, nil
}

func (e *Engine) WaitExec(ctx context.Context, who engine.Caller, ref, id string) (api.Exec, error) {
	var last api.Exec
	err := e.Output(ctx, who, ref, id, nil, true, func(ev api.OutputEvent) error {
		if ev.Exec != nil {
			last = *ev.Exec
		}
		return nil
	})
	return last, err
}

// piece is how much an event of output has at most: little, so that tests see many.
const piece = 1000

func (e *Engine) Output(ctx context.Context, who engine.Caller, ref, id string, from map[api.Stream]int64, follow bool, each func(api.OutputEvent) error) error {
	leave, err := e.enter("Output", ref, id, from[api.Stdout], from[api.Stderr])
	if err != nil {
		return err
	}
	x, err := e.exec(who, ref, id)
	leave()
	if err != nil {
		return err
	}
	at := map[api.Stream]int64{api.Stdout: from[api.Stdout], api.Stderr: from[api.Stderr]}
	for {
		e.mu.Lock()
		out := map[api.Stream][]byte{api.Stdout: bytes.Clone(x.out), api.Stderr: bytes.Clone(x.err)}
		info, changed, failed := x.Exec, e.changed, e.fail["Output"]
		e.mu.Unlock()
		if failed != nil {
			return failed
		}
		for _, s := range []api.Stream{api.Stdout, api.Stderr} {
			for all := out[s]; at[s] < int64(len(all)); {
				p := all[at[s]:min(at[s]+piece, int64(len(all)))]
				if err := each(api.OutputEvent{Stream: s, Offset: at[s], Data: p}); err != nil {
					return err
				}
				at[s] += int64(len(p))
			}
		}
		if info.State == api.ExecEnded && follow {
			return each(api.OutputEvent{Exec: &info})
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// act does something to a running command.
func (e *Engine) act(method string, who engine.Caller, ref, id string, f func(*exec)) error {
	leave, err := e.enter(method, ref, id)
	if err != nil {
		return err
	}
	defer leave()
	x, err := e.exec(who, ref, id)
	if err != nil {
		return err
	}
	if x.State == api.ExecEnded {
		return bailey.Errorf(bailey.CodeConflict, "use the exec "+id, "", "it has ended")
	}
	e.touched++
	f(x)
	x.step()
	e.change()
	return nil
}

func (e *Engine) WriteStdin(ctx context.Context, who engine.Caller, ref, id string, p []byte, eof bool) error {
	return e.act("WriteStdin", who, ref, id, func(x *exec) { x.in, x.eof = append(x.in, p...), x.eof || eof })
}

func (e *Engine) SignalExec(ctx context.Context, who engine.Caller, ref, id, signal string) error {
	return e.act("SignalExec", who, ref, id, func(x *exec) { x.kill(signal) })
}

func (e *Engine) ResizeExec(ctx context.Context, who engine.Caller, ref, id string, w api.Window) error {
	return e.act("ResizeExec", who, ref, id, func(x *exec) { x.window = w })
}
