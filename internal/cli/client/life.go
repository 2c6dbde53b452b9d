package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

func keys(m map[string]string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// each does something to several sandboxes, all of them whatever happens to one.
func (inv *invocation) each(refs []string, do func(ctx context.Context, s *client.Sandbox) error) error {
	c, err := inv.connect()
	if err != nil {
		return err
	}
	var failed error
	for _, ref := range refs {
		if err := do(inv.ctx, c.Sandbox(ref)); err != nil {
			if failed != nil {
				inv.Fail(failed) // the last is the command's own
			}
			failed = err
		}
	}
	return failed
}

// eachNamed does something to each of the things that the arguments name, until one
// fails.
func (inv *invocation) eachNamed(names string, do func(c *client.Client, name string) error) error {
	args, err := inv.some(1, -1, names)
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	for _, name := range args {
		if err := do(c, name); err != nil {
			return err
		}
	}
	return nil
}

func pauseCommand(inv *invocation) (int, error) {
	var req api.PauseRequest
	inv.Flags.BoolVar(&req.ToDisk, "to-disk", false, "hold no memory of the host: files are kept, and processes where the level can put them on disk")
	inv.Flags.BoolVar(&req.FilesOnly, "files-only", false, "with --to-disk: end the processes, or drop those that were put on disk")
	refs, err := inv.some(1, -1, "SANDBOX...")
	if err != nil {
		return 0, err
	}
	return 0, inv.each(refs, func(ctx context.Context, s *client.Sandbox) error {
		r, err := s.Pause(ctx, req)
		if err != nil {
			return err
		}
		return inv.print(r, func(w io.Writer) { fmt.Fprintln(w, terminal.Printable(s.Ref()+" "+receipt(r))) })
	})
}

func resumeCommand(inv *invocation) (int, error) {
	refs, err := inv.some(1, -1, "SANDBOX...")
	if err != nil {
		return 0, err
	}
	return 0, inv.each(refs, func(ctx context.Context, s *client.Sandbox) error {
		sb, err := s.Resume(ctx)
		if err != nil {
			return err
		}
		return inv.print(sb, func(w io.Writer) {
			text := s.Ref() + " " + string(sb.State)
			if sb.Receipt != nil {
				text += " " + receipt(*sb.Receipt)
			}
			fmt.Fprintln(w, terminal.Printable(text))
		})
	})
}

func promoteCommand(inv *invocation) (int, error) {
	words, err := inv.some(2, 2, "SANDBOX LEVEL")
	if err != nil {
		return 0, err
	}
	level, err := bailey.ParseIsolation(words[1])
	if err != nil {
		return 0, err
	}
	return 0, inv.each(words[:1], func(ctx context.Context, s *client.Sandbox) error {
		sb, err := s.Promote(ctx, level)
		if err != nil {
			return err
		}
		return inv.print(sb, func(w io.Writer) {
			text := s.Ref() + " " + string(sb.State) + " at the level " + sb.Isolation.String()
			if sb.Receipt != nil {
				text += " " + receipt(*sb.Receipt)
			}
			fmt.Fprintln(w, terminal.Printable(text))
		})
	})
}

func removeCommand(inv *invocation) (int, error) {
	all := inv.Flags.Bool("all", false, "all of yours")
	refs, err := inv.some(0, -1, "SANDBOX...")
	if err != nil {
		return 0, err
	}
	if *all != (len(refs) == 0) {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey rm", "name sandboxes, or give --all", "it is not clear which are meant")
	}
	if *all {
		c, err := inv.connect()
		if err != nil {
			return 0, err
		}
		for s, err := range c.AllSandboxes(inv.ctx, api.SandboxQuery{}) {
			if err != nil {
				return 0, err
			}
			refs = append(refs, s.ID)
		}
	}
	return 0, inv.each(refs, func(ctx context.Context, s *client.Sandbox) error {
		if err := s.Delete(ctx); err != nil {
			return err
		}
		if inv.JSON {
			return inv.line(map[string]string{"removed": s.Ref()})
		}
		fmt.Fprintln(inv.Stdout, terminal.Printable(s.Ref()))
		return nil
	})
}

func extendCommand(inv *invocation) (int, error) {
	var req api.ExtendRequest
	inv.Flags.Var(lifetime{&req.Timeout}, "timeout", "how long it lives from now on, or never")
	inv.Flags.Var(lifetime{&req.Idle}, "idle", "how long nothing may happen, or never")
	renew := inv.Flags.Bool("renew", false, "renew its lease")
	s, err := inv.one("[--timeout T] [--idle T] [--renew] SANDBOX")
	if err != nil {
		return 0, err
	}
	if req == (api.ExtendRequest{}) && !*renew {
		return 0, bailey.Errorf(bailey.CodeUsage, "extend "+s.Ref(), "give --timeout, --idle or --renew", "nothing was asked for")
	}
	var sb api.Sandbox
	if *renew {
		sb, err = s.Renew(inv.ctx)
	}
	if err == nil && req != (api.ExtendRequest{}) {
		sb, err = s.Extend(inv.ctx, req)
	}
	if err != nil {
		return 0, err
	}
	return 0, inv.print(sb, func(w io.Writer) { fmt.Fprintln(w, "expires", until(sb.Expires)) })
}

func holdCommand(inv *invocation) (int, error) {
	var req api.HoldRequest
	length := api.Lifetime{After: api.Duration(time.Hour)}
	inv.Flags.StringVar(&req.ID, "id", "", "what the hold is called; default one that is made up")
	inv.Flags.StringVar(&req.Why, "why", "", "what for")
	inv.Flags.Var(lifetime{&length}, "for", "how long at most")
	release := inv.Flags.Bool("release", false, "end the hold called --id")
	s, err := inv.one("[--for T] [--release --id ID] SANDBOX")
	if err != nil {
		return 0, err
	}
	if *release {
		if req.ID == "" {
			return 0, bailey.Errorf(bailey.CodeUsage, "release a hold", "give --id", "it is not clear which is meant")
		}
		return 0, s.Release(inv.ctx, req.ID)
	}
	if length.Never {
		return 0, bailey.Errorf(bailey.CodeUsage, "hold "+s.Ref(), "write it like 8h", "a hold has an end")
	}
	req.For = length.After
	h, err := s.Hold(inv.ctx, req)
	if err != nil {
		return 0, err
	}
	return 0, inv.print(h, func(w io.Writer) { fmt.Fprintf(w, "%s until %s\n", h.ID, h.Until.Local().Format(time.DateTime)) })
}

func statsCommand(inv *invocation) (int, error) {
	s, err := inv.one("SANDBOX")
	if err != nil {
		return 0, err
	}
	st, err := s.Stats(inv.ctx)
	if err != nil {
		return 0, err
	}
	return 0, inv.print(st, func(w io.Writer) {
		table(w, [][]string{
			{"memory", size(st.Memory)}, {"memory peak", size(st.MemoryPeak)}, {"processes", fmt.Sprint(st.Pids)},
			{"cpu", time.Duration(st.CPU).Round(time.Millisecond).String()}, {"written", size(st.Disk)},
			{"sent", size(st.Sent)}, {"received", size(st.Received)}, {"idle", time.Duration(st.IdleBilled).Round(time.Second).String()},
		})
	})
}

func mountCommand(inv *invocation) (int, error) {
	return inv.second(verbs{"add": func(inv *invocation) error {
		volume := inv.Flags.Bool("volume", false, "SOURCE is the name of a volume")
		args, err := inv.some(2, 2, "SANDBOX SOURCE[:TARGET][:ro|rw]")
		if err != nil {
			return err
		}
		var req api.MountRequest
		if *volume {
			v, err := volumeMount(args[1])
			if err != nil {
				return err
			}
			req.Volume = &v
		} else if req.Mount, err = absoluteSource(args[1]); err != nil {
			return err
		}
		c, err := inv.connect()
		if err != nil {
			return err
		}
		sb, err := c.Sandbox(args[0]).AddMount(inv.ctx, req)
		if err != nil {
			return err
		}
		return inv.print(sb, func(io.Writer) {})
	}})
}

// ended says that following something was ended by the person, which is no failure.
func (inv *invocation) ended(err error) error {
	if inv.ctx.Err() != nil && (errors.Is(err, context.Canceled) || bailey.CodeOf(err) == bailey.CodeInternal) {
		return nil
	}
	return err
}
