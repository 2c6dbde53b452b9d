package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/embedded"
)

// Names of the ways in which a program gets a sandbox from the library, and of
// the one without package embedded.
const (
	prepared   = "bailey, prepared"
	cold       = "bailey, cold"
	oneCommand = "bailey, one command"
)

// howLibrary says how the subjects of the library are measured.
const howLibrary = "from the library: echo, until its output was there and until the sandbox has gone (no process, mount or control group; not until its files have). " +
	"prepared: Client.Create takes a sandbox that Client.Prepare keeps ready, then Run and Close; it is replaced when the clock has stopped and before anybody else's turn. " +
	"cold: the same calls without Prepare. one command: a sandbox that ends with its command, as in bailey run"

// library gives the subjects that use package embedded as a program would, each
// with a Client of its own. The function given ends them.
func (b *bench) library(ctx context.Context, spec bailey.Spec, features []string) (_ []*subject, done func() error, err error) {
	var clients []*embedded.Client
	done = func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	open := func() (*embedded.Client, error) {
		c, err := embedded.Open(embedded.Options{Home: b.home, Init: b.opt.Init, Baileyd: b.opt.Daemon})
		if err == nil {
			clients = append(clients, c)
		}
		return c, err
	}
	spec.Workspace = b.work
	if b.groups != nil {
		spec.Limits = limits
	}
	ready, err := open()
	if err == nil {
		err = ready.Prepare(ctx, spec, 1)
	}
	var anew *embedded.Client
	if err == nil {
		anew, err = open()
	}
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	features = append(features, "bailey-init stays as its first process", "first: when Run gave the whole output")
	subjects := []*subject{
		{name: prepared, ours: true, features: append(features[:len(features):len(features)], "made before the clock starts; the next one is made after it stops"),
			once: func(ctx context.Context) (sample, error) { return libraryOnce(ctx, ready, spec) }},
		{name: cold, ours: true, features: append(features[:len(features):len(features)], "nothing made in advance"),
			once: func(ctx context.Context) (sample, error) { return libraryOnce(ctx, anew, spec) }},
	}
	return subjects, done, nil
}

// libraryOnce makes or takes a sandbox, runs a command in it and closes it.
func libraryOnce(ctx context.Context, c *embedded.Client, spec bailey.Spec) (v sample, err error) {
	begin := time.Now()
	s, err := c.Create(ctx, spec)
	if err != nil {
		return v, err
	}
	r, err := s.Run(ctx, bailey.Command{Args: echo})
	v.First = time.Since(begin)
	err = errors.Join(err, s.Close(ctx))
	v.Total = time.Since(begin)
	// The next one is made, and files go, before anybody else's turn.
	err = errors.Join(err, c.Settle(ctx))
	if err == nil && (r.End.Reason != bailey.EndExit || r.End.ExitCode != 0 || string(r.Stdout) != "hi\n") {
		err = fmt.Errorf("it ended as %+v and printed %q", r.End, r.Stdout)
	}
	return v, err
}
