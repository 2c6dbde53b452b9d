package gatebench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// Inside is the word behind `baileyd bench` with which it goes on in namespaces
// of its own: it reads Options and writes what came of them, as JSON.
const Inside = "inside"

// outcome is what comes back.
type outcome struct {
	Report *Report       `json:"report,omitempty"`
	Error  *bailey.Error `json:"error,omitempty"`
}

// Run makes the benchmark. It leaves nothing behind.
func Run(ctx context.Context, opt Options, progress io.Writer) (_ *Report, err error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	f, err := folder.Open()
	if err != nil {
		return nil, err
	}
	cache, err := f.Cache()
	if err != nil {
		return nil, err
	}
	if opt.Dir, err = os.MkdirTemp(cache, "bench-"); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "make a folder for the benchmark", "", "%w", err)
	}
	defer func() { err = errors.Join(err, folder.RemoveTree(opt.Dir)) }()
	self, err := os.Executable()
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "find this program", "", "%w", err)
	}
	in, err := json.Marshal(opt)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(opt.Dir, "options.json")
	if err := os.WriteFile(file, in, 0o600); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "write what to measure down", "", "%w", err)
	}
	cmd := exec.CommandContext(ctx, self, "bench", Inside, file)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 15 * time.Second
	cmd.Stderr = progress
	cmd.SysProcAttr = namespaces()
	out, err := cmd.Output()
	var o outcome
	if jerr := json.Unmarshal(out, &o); jerr != nil {
		if err == nil {
			err = jerr
		}
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "measure in namespaces of its own",
			"run it as root, or let users make user namespaces (bailey doctor says how)", "%w", errors.Join(context.Cause(ctx), err))
	}
	if o.Error != nil {
		return nil, o.Error
	}
	return o.Report, nil
}

// namespaces are the bench's own. An ordinary user needs one of users, too, and in
// it the right to mount and to make rules.
func namespaces() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}
	}
	return a
}

// RunInside does the work of Run, in the namespaces.
func RunInside(ctx context.Context, file string, out, progress io.Writer) error {
	in, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var opt Options
	if err := json.Unmarshal(in, &opt); err != nil {
		return err
	}
	if opt.Tell {
		opt.progress = func(measure string, done, of int) { fmt.Fprintf(progress, "\r\x1b[K%s: %d of %d\r", measure, done, of) }
	}
	var o outcome
	if o.Report, err = run(ctx, opt); err != nil {
		if !errors.As(err, &o.Error) {
			o.Error = bailey.Errorf(bailey.CodeInternal, "measure the gate", "", "%w", err)
		}
	}
	return json.NewEncoder(out).Encode(o)
}
