package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
)

// Bounds of a command's answer.
const (
	textDefault = 30_000  // bytes of each stream
	textMost    = 200_000 //
	waitDefault = 2 * time.Minute
	waitMost    = 30 * time.Minute
	progressAll = time.Second // how often a client that asked for it is told of progress
)

type commandIn struct {
	on
	Command string            `json:"command" jsonschema:"a line for sh"`
	Dir     string            `json:"dir,omitempty" jsonschema:"the folder to run in; default: the sandbox's working folder"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"variables on top of the sandbox's"`
	Timeout float64           `json:"timeout_seconds,omitempty" jsonschema:"end it and all that it started after so long; default: never"`
}

type runIn struct {
	commandIn
	Stdin string  `json:"stdin,omitempty" jsonschema:"its input; without it there is none"`
	Wait  float64 `json:"wait_seconds,omitempty" jsonschema:"answer after so long although it runs on: read the rest with output; default 120, at most 1800"`
	Max   int     `json:"max_bytes,omitempty" jsonschema:"bytes of each stream in the answer; default 30000, at most 200000"`
}

type outputIn struct {
	on
	Exec   string  `json:"exec" jsonschema:"the command's id, from run or start"`
	Stdout int64   `json:"stdout_from,omitempty" jsonschema:"offset in bytes from which to read stdout"`
	Stderr int64   `json:"stderr_from,omitempty" jsonschema:"offset in bytes from which to read stderr"`
	Wait   float64 `json:"wait_seconds,omitempty" jsonschema:"wait so long for its end; default 0: what is there now"`
	Max    int     `json:"max_bytes,omitempty" jsonschema:"bytes of each stream in the answer; default 30000, at most 200000"`
}

type stopIn struct {
	on
	Exec   string `json:"exec" jsonschema:"the command's id, from run or start"`
	Signal string `json:"signal,omitempty" jsonschema:"INT, TERM, KILL or another signal; default TERM"`
}

type inputIn struct {
	on
	Exec string `json:"exec" jsonschema:"the id of a command that was started with open_stdin"`
	Text string `json:"text" jsonschema:"what it reads"`
	EOF  bool   `json:"eof,omitempty" jsonschema:"its input ends after that"`
}

type startIn struct {
	commandIn
	OpenStdin bool `json:"open_stdin,omitempty" jsonschema:"keep its input open for write_stdin"`
}

// stream is a part of a command's output.
type stream struct {
	Text    string `json:"text"`
	From    int64  `json:"from"`
	Next    int64  `json:"next"`              // read on from here
	Cut     bool   `json:"cut,omitempty"`     // there is more already
	Dropped int64  `json:"dropped,omitempty"` // bytes before From that are kept no more
}

// execOut is what is told of a command.
type execOut struct {
	Exec     string       `json:"exec"`
	Sandbox  string       `json:"sandbox"`
	State    string       `json:"state"`
	ExitCode *int         `json:"exit_code,omitempty"`
	Ended    string       `json:"ended,omitempty"` // how, where it was not by itself
	Stdout   stream       `json:"stdout"`
	Stderr   stream       `json:"stderr"`
	Denials  []api.Denial `json:"denials,omitempty"`
}

func (s *server) addExec(m *sdk.Server) {
	add(m, tool("run", "Run a command", "Run a command and wait for its end. What the sandbox's policy refused is in denials.", executes), s.run)
	add(m, tool("start", "Start a command", "Start a command in the background, as a server or a long build. It goes on when this connection ends.", executes), s.start)
	add(m, tool("output", "Read a command's output", "Read what a command has printed, from any offset, and whether it has ended.", reads), s.output)
	add(m, tool("write_stdin", "Write to a command", "Write to the input of a command that was started with open_stdin.", executes), s.input)
	add(m, tool("stop", "Stop a command", "Send a signal to a command and all that it has started.", changes), s.stop)
}

// seconds reads a number of seconds as a time of at most max.
func seconds(name string, n float64, normal, most time.Duration) (time.Duration, error) {
	d := time.Duration(n * float64(time.Second))
	switch {
	case n == 0:
		return normal, nil
	case n < 0 || n > most.Seconds():
		return 0, bailey.Errorf(bailey.CodeUsage, "read "+name, fmt.Sprintf("use 0 to %g", most.Seconds()), "%g is out of range", n)
	}
	return d, nil
}

func bytesOf(n int) (int, error) {
	switch {
	case n == 0:
		return textDefault, nil
	case n < 0 || n > textMost:
		return 0, bailey.Errorf(bailey.CodeUsage, "read max_bytes", fmt.Sprintf("use 1 to %d", textMost), "%d is out of range", n)
	}
	return n, nil
}

func (c commandIn) spec() (api.ExecSpec, error) {
	const longest = 30 * 24 * time.Hour
	limit, err := seconds("timeout_seconds", c.Timeout, 0, longest)
	return api.ExecSpec{Args: []string{c.Command}, Shell: true, Dir: c.Dir, Env: c.Env, Timeout: api.Duration(limit)}, err
}

func (s *server) run(ctx context.Context, req *sdk.CallToolRequest, in runIn) (out execOut, text string, err error) {
	wait, err := seconds("wait_seconds", in.Wait, waitDefault, waitMost)
	if err != nil {
		return out, "", err
	}
	most, err := bytesOf(in.Max)
	if err != nil {
		return out, "", err
	}
	spec, err := in.spec()
	if err != nil {
		return out, "", err
	}
	spec.Stdin = in.Stdin != ""
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	x, err := box.Start(ctx, spec)
	if err != nil {
		return out, "", err
	}
	if spec.Stdin {
		err = x.Write(ctx, strings.NewReader(in.Stdin), true)
		if bailey.CodeOf(err) == bailey.CodeConflict || bailey.CodeOf(err) == bailey.CodeNotFound {
			err = nil // it does not read, or has ended
		}
	}
	if err == nil {
		out, err = follow(ctx, req, x, [2]int64{}, wait, most)
	}
	if ctx.Err() != nil {
		// Whoever has given the call up does not want its command either.
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(ctx.Err(), x.Signal(stop, "KILL"))
	}
	return out, out.text(), err
}

func (s *server) start(ctx context.Context, _ *sdk.CallToolRequest, in startIn) (out execOut, text string, err error) {
	spec, err := in.spec()
	if err != nil {
		return out, "", err
	}
	spec.Stdin = in.OpenStdin
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	x, err := box.StartInfo(ctx, spec)
	if err != nil {
		return out, "", err
	}
	out.is(x)
	return out, fmt.Sprintf("started as %s; read what it prints with output", x.ID), nil
}

func (s *server) output(ctx context.Context, req *sdk.CallToolRequest, in outputIn) (out execOut, text string, err error) {
	wait, err := seconds("wait_seconds", in.Wait, 0, waitMost)
	if err != nil {
		return out, "", err
	}
	most, err := bytesOf(in.Max)
	if err != nil {
		return out, "", err
	}
	if in.Stdout < 0 || in.Stderr < 0 {
		return out, "", bailey.Errorf(bailey.CodeUsage, "read output", "use 0 or more", "an offset is less than 0")
	}
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	out, err = follow(ctx, req, box.Exec(in.Exec), [2]int64{in.Stdout, in.Stderr}, wait, most)
	return out, out.text(), err
}

func (s *server) input(ctx context.Context, _ *sdk.CallToolRequest, in inputIn) (out execOut, text string, err error) {
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	x := box.Exec(in.Exec)
	if err := x.Write(ctx, strings.NewReader(in.Text), in.EOF); err != nil {
		return out, "", err
	}
	info, err := x.Info(ctx)
	out.is(info)
	return out, fmt.Sprintf("%d bytes written", len(in.Text)), err
}

func (s *server) stop(ctx context.Context, _ *sdk.CallToolRequest, in stopIn) (out execOut, text string, err error) {
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	signal := strings.TrimPrefix(strings.ToUpper(in.Signal), "SIG")
	if signal == "" {
		signal = "TERM"
	}
	x := box.Exec(in.Exec)
	if err := x.Signal(ctx, signal); err != nil {
		return out, "", err
	}
	info, err := x.Info(ctx)
	out.is(info)
	return out, "sent " + signal + " to " + in.Exec, err
}

// is takes over what is known of a command.
func (o *execOut) is(x api.Exec) {
	o.Exec, o.Sandbox, o.State, o.ExitCode, o.Denials = x.ID, x.Sandbox, string(x.State), x.ExitCode, x.Denials
	if x.End != nil && x.End.Reason != bailey.EndExit {
		o.Ended = x.End.String()
	}
}

// follow reads a command's output until it has ended, wait is over, or there is more
// of both streams than most.
func follow(ctx context.Context, req *sdk.CallToolRequest, x *client.Exec, from [2]int64, wait time.Duration, most int) (out execOut, err error) {
	info, err := waited(ctx, req, x, wait)
	if err != nil {
		return out, err
	}
	out.is(info)
	for i, to := range []*stream{&out.Stdout, &out.Stderr} {
		name, kept := api.Stdout, info.Stdout
		if i == 1 {
			name, kept = api.Stderr, info.Stderr
		}
		if *to, err = read(ctx, x, name, kept, from[i], most); err != nil {
			return out, err
		}
	}
	return out, nil
}

// waited waits for a command's end, but not longer than d, and tells of progress who
// has asked for it.
func waited(ctx context.Context, req *sdk.CallToolRequest, x *client.Exec, d time.Duration) (api.Exec, error) {
	if d > 0 {
		wait, cancel := context.WithTimeout(ctx, d)
		ended := make(chan error, 1)
		go func() {
			_, err := x.Wait(wait)
			ended <- err
		}()
		err := tell(wait, req, x, ended)
		late := wait.Err() != nil
		cancel()
		if err != nil && !late {
			return api.Exec{}, err
		}
	}
	if ctx.Err() != nil {
		return api.Exec{}, ctx.Err()
	}
	return x.Info(ctx)
}

// tell sends how much a command has printed, every second, until it has ended.
func tell(ctx context.Context, req *sdk.CallToolRequest, x *client.Exec, ended <-chan error) error {
	token := req.Params.GetProgressToken()
	tick := time.NewTicker(progressAll)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		if token == nil {
			continue
		}
		info, err := x.Info(ctx)
		if err != nil {
			continue // Wait tells what is wrong
		}
		printed := info.Stdout.To + info.Stderr.To
		_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(printed), Message: fmt.Sprintf("%d bytes printed", printed)}) // nobody depends on it
	}
}

// read gives at most so many bytes of a stream from an offset on, in whole characters.
func read(ctx context.Context, x *client.Exec, name api.Stream, kept api.StreamInfo, from int64, most int) (stream, error) {
	if from >= kept.To {
		return stream{From: kept.To, Next: kept.To}, nil
	}
	r, at, err := x.Read(ctx, name, from)
	if err != nil {
		return stream{}, err
	}
	defer r.Close()
	want := min(int64(most), kept.To-at)
	b := make([]byte, max(want, 0))
	n, err := io.ReadFull(r, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return stream{}, err
	}
	whole := b[:n]
	if at+int64(n) < kept.To || !kept.Closed {
		whole = whole[:wholeRunes(whole)]
	}
	next := at + int64(len(whole))
	return stream{Text: strings.ToValidUTF8(string(whole), "\uFFFD"), From: at, Next: next, Cut: at+want < kept.To, Dropped: max(at-from, 0)}, nil
}

// wholeRunes gives how many bytes there are without a character that goes on.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) && i > 0 {
				return i
			}
			break
		}
	}
	return len(b)
}

// text is what a model reads.
func (o *execOut) text() string {
	var b strings.Builder
	b.WriteString(o.Stdout.Text)
	part := func(s stream, name, from string) {
		if s.Dropped > 0 {
			fmt.Fprintf(&b, "\n[%d bytes of %s before that are kept no more]", s.Dropped, name)
		}
		if s.Cut {
			fmt.Fprintf(&b, "\n[%s is cut; read on with output, exec %s, %s %d]", name, o.Exec, from, s.Next)
		}
	}
	part(o.Stdout, "stdout", "stdout_from")
	if o.Stderr.Text != "" {
		b.WriteString("\n[stderr]\n" + o.Stderr.Text)
	}
	part(o.Stderr, "stderr", "stderr_from")
	for _, d := range o.Denials {
		fmt.Fprintf(&b, "\n[refused: %s: %s", d.What, d.Why)
		if d.Ask != "" {
			b.WriteString("; " + d.Ask)
		}
		b.WriteString("]")
	}
	switch {
	case o.State != string(api.ExecEnded):
		fmt.Fprintf(&b, "\n[it is %s, as %s; read on with output, stdout_from %d, stderr_from %d]", o.State, o.Exec, o.Stdout.Next, o.Stderr.Next)
	case o.Ended != "":
		fmt.Fprintf(&b, "\n[ended: %s]", o.Ended)
	case o.ExitCode != nil && *o.ExitCode != 0:
		fmt.Fprintf(&b, "\n[exit code %d]", *o.ExitCode)
	}
	if b.Len() == 0 {
		return "[it ended with exit code 0 and printed nothing]"
	}
	return b.String()
}
