package gvisor

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey"
)

// runscFailed is runsc's exit code when it could not do what it was told. A command
// may end with it, too: then runsc has nothing to say.
const runscFailed = 128

// judge says how the one command of a sandbox ended, from how its cell did: runsc
// exits as the command does, with 128 and the signal's number if one ended it. So what
// is ended by a signal itself is never the command.
func judge(e bailey.End, complaint string) bailey.End {
	if e.Reason == bailey.EndSignal && e.Signal == "SIGKILL" {
		e.Reason, e.ExitCode, e.Detail = bailey.EndHostLost, 137, "what holds gVisor's kernel in its cell was killed"
		return e
	}
	if e.Reason != bailey.EndExit {
		return e
	}
	switch {
	case slices.Contains(e.LimitHits, "memory") && (e.ExitCode == runscFailed || e.ExitCode == 128+int(syscall.SIGKILL)):
		// The limit is the cell's, and what is killed for it is gVisor's kernel.
		e.Reason, e.ExitCode, e.Signal, e.LimitHits = bailey.EndOOM, bailey.ExitLimit, "SIGKILL", nil
	case e.ExitCode != runscFailed || complaint == "":
	case strings.Contains(complaint, "starting container"):
		e.Reason, e.ExitCode, e.Detail = bailey.EndNotStarted, 126, complaint
		if strings.Contains(complaint, syscall.ENOENT.Error()) {
			e.ExitCode = 127
		}
		for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.ENOEXEC, syscall.ENOTDIR, syscall.ELOOP} {
			if strings.HasSuffix(complaint, ": "+errno.Error()) {
				e.Detail = errno.Error()
			}
		}
	default:
		e.Reason, e.ExitCode, e.Detail = bailey.EndHostLost, 137, "gVisor: "+complaint
	}
	return e
}

// judgeStay says how a sandbox that stays ended: its cell ends when gVisor's kernel
// does, whoever has ended that.
func judgeStay(e bailey.End, complaint string) bailey.End {
	if e.Reason != bailey.EndHostLost {
		return e
	}
	e.Detail = "gVisor's kernel, or what it needs in its cell, has ended"
	if complaint != "" {
		e.Detail += ": " + complaint
	}
	return e
}

// maxComplaint bounds what is read of runsc's log, in bytes.
const maxComplaint = 64 << 10

// complaint gives the last thing that runsc said when it failed, "" if it did not.
// The file lies where the cell may write.
func complaint(dir string) string {
	f, err := os.OpenFile(filepath.Join(dir, logName), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxComplaint))
	if err != nil {
		return ""
	}
	return parseComplaint(b)
}

// parseComplaint reads runsc's log: JSON objects one after the other.
func parseComplaint(b []byte) (last string) {
	for dec := json.NewDecoder(bytes.NewReader(b)); ; {
		var line struct{ Msg, Level string }
		if dec.Decode(&line) != nil {
			return last
		}
		if line.Level == "error" {
			last = strings.Map(func(r rune) rune {
				if r < ' ' {
					return ' '
				}
				return r
			}, line.Msg)
		}
	}
}
