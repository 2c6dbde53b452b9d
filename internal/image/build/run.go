package build

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// defaultPath is the PATH of images that set none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// scriptPath is where a heredoc with a #! line of its own is seen.
const scriptPath = "/dev/pipes/script"

// run does a RUN.
func (s *stage) run(ctx context.Context, c *instructions.RunCommand) error {
	if instructions.GetSecurity(c) == instructions.SecurityInsecure {
		return bailey.Errorf(bailey.CodeNotAvailable, "run a step with --security=insecure", "leave it out", "steps run in sandboxes")
	}
	if len(instructions.GetDevices(c)) > 0 {
		return bailey.Errorf(bailey.CodeNotAvailable, "give a step a device", "leave --device out", "sandboxes have none of the host's devices")
	}
	network := instructions.GetNetwork(c)
	if network == instructions.NetworkHost {
		return bailey.Errorf(bailey.CodeNotAvailable, "run a step in the host's network", "leave --network out, or say none", "everything that leaves a sandbox passes the gate")
	}
	args, script, err := s.runArgs(c)
	if err != nil {
		return err
	}
	if len(s.dirs()) == 0 {
		return fmt.Errorf("there is no file to run: nothing has been copied into the empty image yet")
	}
	view := s.view()
	who, err := resolveUser(view, s.config.Config.User)
	if err != nil {
		return err
	}
	env := s.env()
	if _, ok := getEnv(env, "PATH"); !ok {
		env = setEnv(env, "PATH", defaultPath)
	}
	if _, ok := getEnv(env, "HOME"); !ok {
		env = setEnv(env, "HOME", who.home)
	}
	dir := s.config.Config.WorkingDir
	if dir == "" {
		dir = "/"
	}
	m := &mounts{stage: s, ctx: ctx}
	defer m.close()
	if err := m.plan(instructions.GetMounts(c)); err != nil {
		return err
	}
	if script != nil {
		m.list = append(m.list, Mount{Kind: File, Target: scriptPath, Content: script, Mode: 0o755})
	}
	// Arguments are seen by the command, so they are in the key; the values of
	// secrets are nowhere.
	k := key(s.key, "run", slices.Concat([]string{fmt.Sprint(len(args))}, args, []string{string(script), fmt.Sprint(network), dir, fmt.Sprint(who.User), fmt.Sprint(len(env))}, env, m.keys)...)
	return s.layer(ctx, k, c, func(add func(context.Context, io.Reader) error) error {
		if err := m.make(); err != nil {
			return err
		}
		out := &output{each: s.b.Each}
		step := Step{Layers: s.dirs(), Args: args, Env: env, Dir: dir, User: who.User, Mounts: m.list, Network: network != instructions.NetworkNone, Output: out}
		step.Layer = func(ctx context.Context, r io.Reader, made []string) error {
			drop := slices.Clone(made)
			for _, x := range m.list {
				drop = append(drop, m.real(view, x.Target))
			}
			return piped(func(w io.Writer) error { return strip(r, w, view, drop) }, func(r io.Reader) error { return add(ctx, r) })
		}
		end, err := s.b.Machine.Run(ctx, step)
		out.flush()
		if err != nil {
			return err
		}
		if end.Reason != bailey.EndExit || end.ExitCode != 0 {
			return bailey.Errorf(bailey.CodeBuildFailed, "run the step", "look at what it printed", "it %s: %s", end, out.last())
		}
		return nil
	})
}

// runArgs gives the command of a RUN, and the script it runs if that is a file of
// its own.
func (s *stage) runArgs(c *instructions.RunCommand) (args []string, script []byte, err error) {
	args = c.CmdLine
	if len(c.Files) > 0 {
		if len(args) != 1 || !c.PrependShell {
			return nil, nil, fmt.Errorf("a heredoc is for commands in the shell's form")
		}
		first := c.Files[0]
		if doc, err := parser.ParseHeredoc(args[0]); err == nil && doc != nil {
			text := first.Data
			if first.Chomp {
				text = parser.ChompHeredocContent(text)
			}
			if strings.HasPrefix(text, "#!") {
				return []string{scriptPath}, []byte(text), nil
			}
			args = []string{text}
		} else {
			full := args[0]
			for _, f := range c.Files {
				full += "\n" + f.Data + f.Name
			}
			args = []string{full}
		}
	}
	if c.PrependShell {
		return append(s.shell(), strings.Join(args, " ")), nil, nil
	}
	if len(args) == 0 || args[0] == "" {
		return nil, nil, fmt.Errorf("there is no command")
	}
	return args, nil, nil
}

// output passes on what a step prints, line by line, and keeps the end of it.
type output struct {
	each func(api.Progress)

	mu   sync.Mutex
	line []byte
	tail []string
}

const (
	maxOutLine = 16 << 10 // a longer line is passed on in pieces
	maxTail    = 20       // lines
)

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range p {
		o.line = append(o.line, c)
		if c == '\n' || len(o.line) >= maxOutLine {
			o.pass()
		}
	}
	return len(p), nil
}

func (o *output) pass() {
	if len(o.line) == 0 {
		return
	}
	text := strings.ToValidUTF8(string(o.line), "\uFFFD")
	o.line = o.line[:0]
	o.each(api.Progress{Log: text})
	o.tail = append(o.tail, strings.TrimRight(text, "\r\n"))
	if n := len(o.tail) - maxTail; n > 0 {
		o.tail = slices.Clone(o.tail[n:])
	}
}

func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pass()
}

// last is the end of what was printed, without what could move a cursor.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.Join(o.tail, "\n")
	if len(text) > 2000 {
		text = text[len(text)-2000:]
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text), "?")
}

// inside resolves a mount's target as a build file writes it.
func (s *stage) mountTarget(t string) (string, error) {
	if t == "" {
		return "", fmt.Errorf("a mount has no target")
	}
	t = s.inside(t)
	if t == "/" || path.Clean(t) != t {
		return "", fmt.Errorf("a mount cannot be over the root")
	}
	return t, nil
}
