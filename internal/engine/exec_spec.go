package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/execlog"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

const (
	startCommand = "run a command"
	maxGrace     = time.Hour
	// maxTimeout keeps a deadline within what the clock inside counts.
	maxTimeout = 10 * 365 * 24 * time.Hour
)

// checkExec refuses what no command can be.
func checkExec(s api.ExecSpec) error {
	refuse := func(fix, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, startCommand, fix, format, args...)
	}
	if s.ID != "" && !isExecID(s.ID) {
		return refuse("use 1 to 128 letters, digits, dots, underscores, colons and dashes", "%q is no id of a command", s.ID)
	}
	if len(s.Args) == 0 || s.Args[0] == "" {
		return refuse("name one", "there is no command")
	}
	if len(s.Args) > guest.MaxArgs || len(s.Env) > guest.MaxArgs {
		return refuse("pass less, or a file", "it has more than %d arguments or variables", guest.MaxArgs)
	}
	for _, a := range s.Args {
		if strings.IndexByte(a, 0) >= 0 {
			return refuse("pass it as input, or in a file", "an argument holds a NUL byte")
		}
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return refuse("", "%q cannot be a variable of the environment with its value", k)
		}
	}
	switch {
	case strings.IndexByte(s.Dir, 0) >= 0 || len(s.Dir) > guest.MaxPath:
		return refuse("use at most 4096 bytes without NUL", "the folder to run in is no path")
	case s.Timeout < 0 || time.Duration(s.Timeout) > maxTimeout:
		return refuse("use at most "+maxTimeout.String()+", or none", "a timeout of %s is out of range", time.Duration(s.Timeout))
	case s.Grace < 0 || time.Duration(s.Grace) > maxGrace:
		return refuse("use at most "+maxGrace.String(), "a grace of %s is out of range", time.Duration(s.Grace))
	case s.Output != 0 && (s.Output < execlog.MinCap || s.Output > execlog.MaxCap):
		return refuse("use 64 KiB to 16 GiB", "a bound of %d bytes for its output is out of range", s.Output)
	case s.Generation < 0:
		return refuse("", "there is no generation %d", s.Generation)
	}
	return nil
}

func isExecID(s string) bool {
	return s != "" && len(s) <= guest.MaxID && strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._:-", r))
	}) < 0
}

// newExecID makes an id for a command whose caller has chosen none.
func newExecID() string {
	var b [10]byte
	rand.Read(b[:])
	return "x" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// digestOfExec tells specs apart. The generation that a caller has seen is not
// part of what it wants.
func digestOfExec(s api.ExecSpec) string {
	s.ID, s.Generation = "", 0
	text, _ := json.Marshal(s) // nothing in it can fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// hashOfExec names an exec where its id might mean something else, as in paths.
func hashOfExec(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// guestSpec gives what bailey-init is told, but for descriptors.
func (e *Engine) guestSpec(ctx context.Context, u *use, s api.ExecSpec, id string) (guest.ExecSpec, error) {
	g := u.gen
	spec := guest.ExecSpec{ID: id, Argv: s.Args, Dir: path.Clean("/" + g.workdir), User: g.user, Stdin: s.Stdin,
		Timeout: time.Duration(s.Timeout), Grace: time.Duration(s.Grace)}
	if s.Shell {
		spec.Argv = append([]string{"/bin/sh", "-c", s.Args[0], "sh"}, s.Args[1:]...)
	}
	if path.IsAbs(s.Dir) {
		spec.Dir = s.Dir
	} else if s.Dir != "" {
		spec.Dir = path.Join(spec.Dir, s.Dir)
	}
	if s.User != "" {
		if u.box.record().Sandbox.Isolation == bailey.IsolationProcess {
			return spec, bailey.Errorf(bailey.CodeNotAvailable, "run a command as "+strconv.Quote(s.User), "use the container level", "at the process level there is one user")
		}
		user, err := findUser(ctx, u.client, s.User)
		if err != nil {
			return spec, err
		}
		spec.User = user
	}
	if s.Pty != nil {
		spec.Terminal = &guest.Window{Rows: s.Pty.Rows, Cols: s.Pty.Cols}
		if s.Pty.Rows == 0 && s.Pty.Cols == 0 {
			spec.Terminal = &guest.Window{Rows: 24, Cols: 80}
		}
	}
	spec.Env = mergeEnv(g.box.record().Env, s.Env)
	if _, given := s.Env["TERM"]; s.Pty != nil && !given {
		spec.Env = mergeEnv(spec.Env, map[string]string{"TERM": "xterm-256color"})
	}
	return spec, nil
}

// mergeEnv puts variables over others, in a fixed order.
func mergeEnv(env []string, over map[string]string) []string {
	list := make([]string, 0, len(env)+len(over))
	for _, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		if _, replaced := over[k]; !replaced {
			list = append(list, kv)
		}
	}
	n := len(list)
	for k, v := range over {
		list = append(list, k+"="+v)
	}
	slices.Sort(list[n:])
	return list
}
