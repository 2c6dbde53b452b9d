package e2b

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// execPrefix begins the ids of commands that this front started. A tag follows what is
// chosen by chance, so that it is known after a restart.
const execPrefix = "e2b:"

var tagText = base32.StdEncoding.WithPadding(base32.NoPadding)

// maxTag is how long a tag may be, in bytes, so that an id has room for it.
const maxTag = 50

// kept is how long the end of a command is told to who connects to it late.
const kept = 30 * time.Second

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Env  map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

type ptySize struct {
	Size struct {
		Cols uint16 `json:"cols"`
		Rows uint16 `json:"rows"`
	} `json:"size"`
}

type startRequest struct {
	Process processConfig `json:"process"`
	Pty     *ptySize      `json:"pty"`
	Tag     string        `json:"tag"`
	Stdin   *bool         `json:"stdin"`
}

// selector names a process.
type selector struct {
	Pid *int    `json:"pid"`
	Tag *string `json:"tag"`
}

type input struct {
	Stdin *[]byte `json:"stdin"`
	Pty   *[]byte `json:"pty"`
}

// processRequest is any other request about one process.
type processRequest struct {
	Process selector `json:"process"`
	Input   input    `json:"input"`
	Signal  string   `json:"signal"`
	Pty     *ptySize `json:"pty"`
}

func (c *call) process(method string) {
	switch method {
	case "Start":
		c.start()
	case "Connect":
		c.connectProcess()
	case "List":
		unary(c, func(struct{}) (any, error) { return c.listProcesses() })
	case "SendInput":
		unary(c, func(in processRequest) (any, error) {
			x, err := c.find(in.Process, false)
			if err != nil {
				return nil, err
			}
			return nil, c.sendInput(x, in.Input)
		})
	case "CloseStdin":
		unary(c, func(in processRequest) (any, error) {
			x, err := c.find(in.Process, false)
			if err != nil {
				return nil, err
			}
			if x.Pty {
				return nil, connectErrorf("failed_precondition", "a terminal's input cannot be closed: send the character for end of file")
			}
			err = c.s.engine.WriteStdin(c.ctx(), c.who, c.box.ID, x.ID, nil, true)
			if bailey.CodeOf(err) == bailey.CodeConflict {
				err = nil // it was closed before
			}
			return nil, err
		})
	case "SendSignal":
		unary(c, func(in processRequest) (any, error) { return nil, c.signal(in) })
	case "Update":
		unary(c, func(in processRequest) (any, error) {
			x, err := c.find(in.Process, false)
			if err != nil || in.Pty == nil {
				return nil, err
			}
			return nil, c.s.engine.ResizeExec(c.ctx(), c.who, c.box.ID, x.ID, api.Window{Rows: in.Pty.Size.Rows, Cols: in.Pty.Size.Cols})
		})
	case "StreamInput":
		c.streamInput()
	default:
		c.refuse(connectErrorf("unimplemented", "process.Process has no %s", method), http.StatusNotFound)
	}
}

// specOf says what is run for a request.
func (c *call) specOf(in startRequest) (api.ExecSpec, error) {
	var spec api.ExecSpec
	user, err := c.user()
	if err != nil {
		return spec, err
	}
	if in.Process.Cmd == "" {
		return spec, connectErrorf("invalid_argument", "there is no command")
	}
	if len(in.Tag) > maxTag {
		return spec, connectErrorf("invalid_argument", "a tag has at most %d bytes", maxTag)
	}
	dir := user.home
	if in.Process.Cwd != "" {
		if dir, err = user.resolve(in.Process.Cwd); err != nil {
			return spec, err
		}
	}
	if i, err := c.target(dir); err != nil || i.Type != "dir" {
		if in.Process.Cwd != "" || bailey.CodeOf(err) != bailey.CodeNotFound && err != nil {
			if err == nil || bailey.CodeOf(err) == bailey.CodeNotFound {
				err = connectErrorf("invalid_argument", "cwd '%s' does not exist", in.Process.Cwd)
			}
			return spec, err
		}
		dir = "/" // a user without a home
	}
	var id [10]byte
	rand.Read(id[:])
	spec = api.ExecSpec{ID: execPrefix + strings.ToLower(tagText.EncodeToString(id[:])), Args: append([]string{in.Process.Cmd}, in.Process.Args...), Dir: dir,
		Stdin: in.Stdin == nil || *in.Stdin,
		Env: map[string]string{"HOME": user.home, "USER": user.name, "LOGNAME": user.name,
			"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": c.box.ID, "E2B_TEMPLATE_ID": templateOf(c.box)}}
	for k := range c.box.Env {
		delete(spec.Env, k) // what the sandbox was made with comes before
	}
	for k, v := range in.Process.Env {
		spec.Env[k] = v
	}
	if in.Tag != "" {
		spec.ID += "." + tagText.EncodeToString([]byte(in.Tag))
	}
	if !user.own {
		spec.User = user.name
	}
	if in.Pty != nil {
		spec.Pty, spec.Stdin = &api.Window{Rows: in.Pty.Size.Rows, Cols: in.Pty.Size.Cols}, true
	}
	if t := c.r.Header.Get("Connect-Timeout-Ms"); t != "" {
		n, err := strconv.ParseUint(t, 10, 32)
		if err != nil {
			return spec, connectErrorf("invalid_argument", "Connect-Timeout-Ms %.20q is no number", t)
		}
		spec.Timeout = api.Duration(time.Duration(n) * time.Millisecond)
	}
	return spec, nil
}

func (c *call) start() {
	st, in, cerr := openStream[startRequest](c)
	if cerr != nil {
		c.refuse(cerr, 0)
		return
	}
	spec, err := c.specOf(in)
	if err != nil {
		st.end(err)
		return
	}
	x, err := c.s.engine.StartExec(st.ctx, c.who, c.box.ID, spec)
	if err == nil && x.End != nil && x.End.Reason == bailey.EndNotStarted {
		err = connectErrorf("invalid_argument", "the process cannot be started: %s", x.End.Detail)
	}
	if err != nil {
		st.end(err)
		return
	}
	c.follow(st, x, map[api.Stream]int64{api.Stdout: 0, api.Stderr: 0})
}

// connectProcess follows a process that was started before, from now on.
func (c *call) connectProcess() {
	st, in, cerr := openStream[processRequest](c)
	if cerr != nil {
		c.refuse(cerr, 0)
		return
	}
	x, err := c.find(in.Process, true)
	if err != nil {
		st.end(err)
		return
	}
	c.follow(st, x, map[api.Stream]int64{api.Stdout: x.Stdout.To, api.Stderr: x.Stderr.To})
}

type message map[string]any

func event(name string, v any) message { return message{"event": message{name: v}} }

// follow tells of a command's start, its output from offsets on, and its end.
func (c *call) follow(st *stream, x api.Exec, from map[api.Stream]int64) {
	if err := st.send(event("start", message{"pid": x.Pid})); err != nil {
		st.cancel()
		return
	}
	stop := st.keepAlive(event("keepalive", message{}))
	var last *api.Exec
	err := c.s.engine.Output(st.ctx, c.who, c.box.ID, x.ID, from, true, func(ev api.OutputEvent) error {
		switch {
		case ev.Error != nil:
			return ev.Error
		case ev.Exec != nil:
			last = ev.Exec
			return nil
		case ev.Dropped > 0:
			return connectErrorf("data_loss", "%d bytes of output are kept no more: read faster", ev.Dropped)
		}
		name := string(ev.Stream)
		if x.Pty {
			name = "pty"
		}
		return st.send(event("data", message{name: ev.Data}))
	})
	stop()
	if err == nil && last != nil {
		if last.End != nil && last.End.Reason == bailey.EndTimeout {
			err = connectErrorf("deadline_exceeded", "the process was ended by its timeout")
		} else {
			err = st.send(event("end", endEvent(*last)))
		}
	}
	st.end(err)
}

// endEvent says how a command ended.
func endEvent(x api.Exec) message {
	e := bailey.End{}
	if x.End != nil {
		e = *x.End
	}
	switch {
	case e.Reason == bailey.EndExit:
		m := message{"exitCode": e.ExitCode, "exited": true, "status": "exit status " + strconv.Itoa(e.ExitCode)}
		if e.ExitCode != 0 {
			m["error"] = m["status"]
		}
		return m
	case e.Signal != "" && (e.Reason == bailey.EndSignal || e.Reason == bailey.EndUser):
		status := "signal: " + unix.SignalNum(e.Signal).String()
		return message{"exitCode": -1, "exited": false, "status": status, "error": status}
	}
	text := e.String()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return message{"exitCode": e.Code(), "exited": false, "status": text, "error": text}
}

// find gives the process that a selector names; ended also one that ended just now.
func (c *call) find(sel selector, ended bool) (api.Exec, error) {
	list, err := c.s.engine.Execs(c.ctx(), c.who, c.box.ID)
	if err != nil {
		return api.Exec{}, err
	}
	var found *api.Exec
	for i, x := range list {
		if !strings.HasPrefix(x.ID, execPrefix) || x.Generation != c.box.Generation {
			continue
		}
		byPid := sel.Pid != nil && x.Pid == *sel.Pid && x.Pid != 0
		if !byPid && (sel.Tag == nil || *sel.Tag == "" || tagOf(x.ID) != *sel.Tag) {
			continue
		}
		if x.State != api.ExecEnded {
			return x, nil
		}
		if ended && x.Ended != nil && time.Since(*x.Ended) < kept {
			found = &list[i]
		}
	}
	if found != nil {
		return *found, nil
	}
	if sel.Pid != nil {
		return api.Exec{}, connectErrorf("not_found", "process with pid %d not found", *sel.Pid)
	}
	return api.Exec{}, connectErrorf("not_found", "the process was not found")
}

func tagOf(id string) string {
	_, text, ok := strings.Cut(id, ".")
	if !ok {
		return ""
	}
	tag, err := tagText.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(tag)
}

func (c *call) listProcesses() (any, error) {
	list, err := c.s.engine.Execs(c.ctx(), c.who, c.box.ID)
	out := []message{}
	for _, x := range list {
		if !strings.HasPrefix(x.ID, execPrefix) || x.State == api.ExecEnded || len(x.Args) == 0 {
			continue
		}
		m := message{"config": processConfig{Cmd: x.Args[0], Args: x.Args[1:]}, "pid": x.Pid}
		if tag := tagOf(x.ID); tag != "" {
			m["tag"] = tag
		}
		out = append(out, m)
	}
	return message{"processes": out}, err
}

func (c *call) sendInput(x api.Exec, in input) error {
	text := in.Stdin
	if x.Pty {
		text = in.Pty
	}
	if text == nil {
		return connectErrorf("failed_precondition", "the input is of the wrong kind: a terminal takes pty, another process stdin")
	}
	err := c.s.engine.WriteStdin(c.ctx(), c.who, c.box.ID, x.ID, *text, false)
	if code := bailey.CodeOf(err); code == bailey.CodeConflict || code == bailey.CodeUsage {
		err = connectErrorf("internal", "stdin not enabled or closed: %v", err)
	}
	return err
}

func (c *call) signal(in processRequest) error {
	x, err := c.find(in.Process, false)
	if err != nil {
		return err
	}
	name, ok := strings.CutPrefix(in.Signal, "SIGNAL_")
	if !ok || name != "SIGKILL" && name != "SIGTERM" {
		return connectErrorf("invalid_argument", "%q is no signal", in.Signal)
	}
	err = c.s.engine.SignalExec(c.ctx(), c.who, c.box.ID, x.ID, name)
	if bailey.CodeOf(err) == bailey.CodeConflict {
		err = connectErrorf("not_found", "the process has ended")
	}
	return err
}

// streamInput takes input in many messages, and answers once at their end.
func (c *call) streamInput() {
	st := &stream{c: c, cancel: func() {}}
	var x *api.Exec
	for {
		_, payload, err := readEnvelope(c.r.Body, maxMessage)
		if errors.Is(err, io.EOF) {
			if err := st.send(message{}); err != nil {
				return
			}
			st.end(nil)
			return
		}
		var in struct {
			Start *struct {
				Process selector `json:"process"`
			} `json:"start"`
			Data *struct {
				Input input `json:"input"`
			} `json:"data"`
		}
		if err == nil {
			if jerr := json.Unmarshal(payload, &in); jerr != nil {
				err = connectErrorf("invalid_argument", "the request is not what it should be: %v", jerr)
			}
		}
		switch {
		case err != nil:
		case in.Start != nil:
			var found api.Exec
			if found, err = c.find(in.Start.Process, false); err == nil {
				x = &found
			}
		case in.Data != nil && x == nil:
			err = connectErrorf("invalid_argument", "input comes before it is said for which process")
		case in.Data != nil:
			err = c.sendInput(*x, in.Data.Input)
		}
		if err != nil {
			st.end(err)
			return
		}
	}
}
