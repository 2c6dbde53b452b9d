//go:build linux

package torture

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
)

// box is a sandbox as it has to be.
type box struct {
	s       *client.Sandbox
	name    string
	rnd     *rand.Rand
	files   map[string]string // path → hash of its content
	lines   int               // of /root/log
	execs   []done
	counter *client.Exec  // a command that counts, nil when none runs
	pace    time.Duration // of its numbers
	n       int
}

// done is a command that has ended.
type done struct {
	id, out string // hash of its output
	code    int
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:8])
}

// makeBox makes a sandbox. The answer may be lost on the way; its key finds it again.
// pace is how often it counts: each number is a process.
func makeBox(ctx context.Context, c *client.Client, name string, seed uint64, pace time.Duration, spec api.SandboxSpec) (*box, error) {
	spec.IdempotencyKey, spec.Labels = name, map[string]string{"torture": name}
	spec.Timeout = api.Lifetime{Never: true}
	s, err := c.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	b := &box{s: s, name: name, rnd: rand.New(rand.NewPCG(seed, 1)), files: map[string]string{}, pace: pace}
	return b, b.count(ctx)
}

// count starts a command that writes numbers until the sandbox's processes end.
func (b *box) count(ctx context.Context) (err error) {
	b.n++
	b.counter, err = b.s.Start(ctx, api.ExecSpec{ID: fmt.Sprintf("%s-count-%d", b.name, b.n), Args: []string{"sh", "-c", fmt.Sprintf("i=0; while :; do echo $i; i=$((i+1)); sleep %g; done", b.pace.Seconds())}})
	return err
}

// counted looks at the numbers so far: each once, in order.
func (b *box) counted(ctx context.Context) error {
	if b.counter == nil {
		return nil
	}
	text, err := output(ctx, b.counter)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for i, l := range lines[:len(lines)-1] { // the last may be half written
		if l != fmt.Sprint(i) {
			return fmt.Errorf("line %d of the numbers is %q", i, l)
		}
	}
	return nil
}

// output reads what is kept of a command's output, which has to be all of it. A
// stream that breaks is not read anew by itself: a part of it has been told.
func output(ctx context.Context, x *client.Exec) ([]byte, error) {
	for {
		r, at, err := x.Read(ctx, api.Stdout, 0)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		r.Close()
		switch {
		case broken(err) && ctx.Err() == nil:
			continue
		case err == nil && at != 0:
			err = fmt.Errorf("the output of %s begins at offset %d", x.ID(), at)
		}
		return text, err
	}
}

// step does one thing at random.
func (b *box) step(ctx context.Context) error {
	b.n++
	id := fmt.Sprintf("%s-%d", b.name, b.n)
	switch k := b.rnd.IntN(100); {
	case k < 35:
		return b.run(ctx, id)
	case k < 55:
		return b.log(ctx, id)
	case k < 70:
		return b.write(ctx, id)
	case k < 78:
		if _, err := b.s.Pause(ctx, api.PauseRequest{}); err != nil {
			return err
		}
		_, err := b.s.Resume(ctx)
		return err
	case k < 82:
		return b.stop(ctx)
	case k < 88:
		return b.checkpoint(ctx)
	case k < 94:
		return b.counted(ctx)
	default:
		return b.check(ctx)
	}
}

// run runs a command whose output and status are known.
func (b *box) run(ctx context.Context, id string) error {
	n, code := 1+b.rnd.IntN(20000), b.rnd.IntN(4)
	res, err := b.s.Run(ctx, api.ExecSpec{ID: id, Args: []string{"sh", "-c", fmt.Sprintf("seq 1 %d; exit %d", n, code)}})
	if err != nil {
		return err
	}
	var want strings.Builder
	for i := range n {
		fmt.Fprintln(&want, i+1)
	}
	if string(res.Out) != want.String() || res.ExitCode == nil || *res.ExitCode != code {
		return fmt.Errorf("%s: %d bytes and %v instead of %d bytes and status %d", id, len(res.Out), res.End, want.Len(), code)
	}
	b.execs = append(b.execs, done{id, sum(res.Out), code})
	return nil
}

// log appends a line, once however often it is asked for.
func (b *box) log(ctx context.Context, id string) error {
	res, err := b.s.Run(ctx, api.ExecSpec{ID: id, Args: []string{"sh", "-c", "echo " + id + " >> /root/log"}})
	if err != nil {
		return err
	}
	if res.ExitCode == nil || *res.ExitCode != 0 {
		return fmt.Errorf("%s: %v %s", id, res.End, res.Err)
	}
	b.lines++
	b.execs = append(b.execs, done{id, sum(nil), 0})
	return nil
}

func (b *box) write(ctx context.Context, id string) error {
	data := make([]byte, b.rnd.IntN(200_000))
	for i := range data {
		data[i] = byte(b.rnd.Uint32())
	}
	path := fmt.Sprintf("/root/f%d", b.rnd.IntN(10))
	for {
		_, err := b.s.Files().WriteFile(ctx, path, data, 0)
		switch {
		case err == nil:
			b.files[path] = sum(data)
			return nil
		case !broken(err):
			return fmt.Errorf("%s: %w", id, err)
		}
		// A body is not sent twice by itself: whether it arrived is not known, and
		// the file is the old one or the new one.
		got, err := b.s.Files().ReadFile(ctx, path)
		if err == nil && sum(got) != b.files[path] && sum(got) != sum(data) {
			return fmt.Errorf("%s: half of %s was written", id, path)
		}
	}
}

// broken says that a connection broke under a request that is not made again by
// itself.
func broken(err error) bool { return bailey.CodeOf(err) == bailey.CodeDaemonUnavailable }

// stop keeps the files only; the numbers begin anew.
func (b *box) stop(ctx context.Context) error {
	if err := b.counted(ctx); err != nil {
		return err
	}
	if _, err := b.s.Pause(ctx, api.PauseRequest{ToDisk: true}); err != nil {
		return err
	}
	if _, err := b.s.Resume(ctx); err != nil {
		return err
	}
	if err := b.counted(ctx); err != nil { // of the old one, kept
		return err
	}
	return b.count(ctx)
}

// checkpoint makes one, and a fork of it that has to be the same.
func (b *box) checkpoint(ctx context.Context) error {
	if _, err := b.s.Checkpoint(ctx, ""); err != nil && !broken(err) {
		return err
	}
	if b.rnd.IntN(3) > 0 {
		return nil
	}
	list, err := b.s.Fork(ctx, api.ForkRequest{})
	if err != nil {
		// A fork has no key: after a break nobody knows whether it was made. What
		// was made is found by its label and removed at the end.
		if broken(err) {
			return nil
		}
		return err
	}
	child := &box{s: list[0], name: b.name + "-fork", files: b.files, lines: b.lines}
	return errors.Join(child.check(ctx), list[0].Delete(ctx))
}

// check compares the sandbox's files with the model.
func (b *box) check(ctx context.Context) error {
	for path, want := range b.files {
		data, err := b.s.Files().ReadFile(ctx, path)
		if err != nil {
			return err
		}
		if got := sum(data); got != want {
			return fmt.Errorf("%s: %s is %s, not %s", b.name, path, got, want)
		}
	}
	if b.lines == 0 {
		return nil
	}
	data, err := b.s.Files().ReadFile(ctx, "/root/log")
	if err != nil {
		return err
	}
	lines := strings.Fields(string(data))
	seen := map[string]bool{}
	for _, l := range lines {
		if seen[l] {
			return fmt.Errorf("%s: the line %s is there twice", b.name, l)
		}
		seen[l] = true
	}
	if len(lines) != b.lines {
		return fmt.Errorf("%s: the log has %d lines, not %d", b.name, len(lines), b.lines)
	}
	return nil
}

// checkExecs compares what is kept of commands.
func (b *box) checkExecs(ctx context.Context) error {
	for _, d := range b.execs {
		info, err := b.s.Exec(d.id).Info(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", d.id, err)
		}
		if info.ExitCode == nil || *info.ExitCode != d.code {
			return fmt.Errorf("%s: kept as %v", d.id, info.End)
		}
		out, err := output(ctx, b.s.Exec(d.id))
		if err != nil {
			return err
		}
		if got := sum(out); got != d.out {
			return fmt.Errorf("%s: its output is %s, not %s", d.id, got, d.out)
		}
	}
	return nil
}
