//go:build linux

package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// gone takes the errors of a group that has been removed for success.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// retry calls try until it is done, with growing pauses of at most 16 ms. It
// is for version 1, which tells about nothing.
func (g *Group) retry(ctx context.Context, try func() (done bool, err error)) error {
	pause := 250 * time.Microsecond
	for {
		done, err := try()
		if done || err != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, 16*time.Millisecond)
	}
}

// Kill sends SIGKILL to every process in the group, also to those that are
// being made, frozen or not, and waits until all are gone.
func (g *Group) Kill(ctx context.Context) error {
	if len(g.folders()) == 0 {
		return bailey.Errorf(bailey.CodeNotAvailable, "kill the sandbox by its control group", "", "it has none on this host")
	}
	if g.v2 != "" {
		err := gone(write(g.v2, "cgroup.kill", "1"))
		if err == nil && (exists(g.v2, "cgroup.kill") || !exists(g.v2, "")) {
			return g.WaitEmpty(ctx)
		}
		// Linux before 5.14 has no cgroup.kill.
	}
	return g.killEach(ctx)
}

// killEach kills the processes one by one, while nothing new can be made.
func (g *Group) killEach(ctx context.Context) error {
	if dir := g.controllerDir(Pids); dir != "" {
		write(dir, "pids.max", "0") // best effort: no forks from here on
	}
	switch {
	case g.v2 != "":
		write(g.v2, "cgroup.freeze", "1")
	case g.freeze != "":
		write(g.freeze, "freezer.state", "FROZEN")
	}
	return g.retry(ctx, func() (bool, error) {
		left := 0
		for _, dir := range g.folders() {
			n, err := killIn(dir)
			if err != nil {
				return false, err
			}
			left += n
		}
		// In version 1 the signal takes effect when the group thaws.
		switch {
		case g.v2 != "":
			write(g.v2, "cgroup.freeze", "0")
		case g.freeze != "":
			write(g.freeze, "freezer.state", "THAWED")
		}
		return left == 0, nil
	})
}

// killIn kills what is in a folder and those below it, and counts it.
func killIn(dir string) (int, error) {
	procs, err := pids(dir)
	if err != nil {
		return 0, gone(err)
	}
	for _, pid := range procs {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended, or it is of a process namespace we do not see
		}
		// The number may have been given to another process since it was read.
		// What the descriptor means cannot change any more, so a second look
		// decides.
		if again, err := pids(dir); err == nil && slices.Contains(again, pid) {
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
	}
	n := len(procs)
	for _, sub := range subgroups(dir) {
		m, err := killIn(sub)
		if err != nil {
			return 0, err
		}
		n += m
	}
	return n, nil
}

// subgroups lists the groups right below dir.
func subgroups(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// Freeze stops every process in the group, and returns when all are stopped.
func (g *Group) Freeze(ctx context.Context) error { return g.setFrozen(ctx, true) }

// Thaw lets them run again.
func (g *Group) Thaw(ctx context.Context) error { return g.setFrozen(ctx, false) }

func (g *Group) setFrozen(ctx context.Context, on bool) error {
	what, flag, state := "thaw the sandbox", "0", "THAWED"
	if on {
		what, flag, state = "freeze the sandbox", "1", "FROZEN"
	}
	var err error
	switch {
	case g.v2 != "":
		if err = write(g.v2, "cgroup.freeze", flag); err == nil {
			want := field("x "+flag, "x")
			err = waitFor(ctx, g.v2, "cgroup.events", func(s string) bool { return field(s, "frozen") == want })
		}
	case g.freeze != "":
		err = g.setFrozenV1(ctx, state)
	default:
		return bailey.Errorf(bailey.CodeNotAvailable, what, "", "this host has no control group for it")
	}
	if err != nil {
		if on {
			write(g.v2orFreezer()) // do not leave it half frozen
		}
		return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
	}
	return nil
}

// setFrozenV1 brings a group of version 1 into a state. One that is FREEZING may stay
// so for ever: a task that waits in vfork is not frozen before its child gets on, and
// the child may be frozen already. After a while, longer each time, all are let go
// for a moment.
func (g *Group) setFrozenV1(ctx context.Context, state string) error {
	patience := time.Millisecond
	return g.retry(ctx, func() (bool, error) {
		if err := write(g.freeze, "freezer.state", state); err != nil {
			return false, err
		}
		for begun := time.Now(); ; time.Sleep(50 * time.Microsecond) {
			got, err := read(g.freeze, "freezer.state")
			if err != nil || got == state {
				return true, err
			}
			if time.Since(begun) >= patience || ctx.Err() != nil {
				break
			}
		}
		patience = min(2*patience, 32*time.Millisecond)
		return false, write(g.freeze, "freezer.state", "THAWED")
	})
}

// v2orFreezer gives the arguments of the write that thaws.
func (g *Group) v2orFreezer() (dir, name, value string) {
	if g.v2 != "" {
		return g.v2, "cgroup.freeze", "0"
	}
	return g.freeze, "freezer.state", "THAWED"
}

// Remove removes the group. It waits for processes that are on their way out,
// but kills none; with ctx over, the error has code busy. A group that has been
// removed already is no error.
func (g *Group) Remove(ctx context.Context) error {
	const what = "remove the control group"
	const fix = "end the processes in it first"
	err := g.removeAll()
	if errors.Is(err, unix.EBUSY) {
		if err := g.WaitEmpty(ctx); err != nil {
			return bailey.Errorf(bailey.CodeBusy, what, fix, "%s still has processes (%w)", g.name, err)
		}
		// Version 2 says that it is empty; version 1 folders of the same
		// processes may follow a little later, and say nothing.
		err = g.retry(ctx, func() (bool, error) {
			err := g.removeAll()
			if errors.Is(err, unix.EBUSY) {
				return false, nil
			}
			return true, err
		})
		if err != nil && ctx.Err() != nil {
			return bailey.Errorf(bailey.CodeBusy, what, fix, "%s is still in use (%w)", g.name, err)
		}
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
	}
	return nil
}

// removeAll removes the folders, the version 2 one last, since that one can be
// waited for. It gives the first error, having tried all.
func (g *Group) removeAll() error {
	var first error
	for _, dir := range g.folders() {
		if err := remove(dir); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func remove(dir string) error {
	err := rmdir(dir)
	if err == nil || !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	for _, sub := range subgroups(dir) {
		if err := remove(sub); err != nil {
			return err
		}
	}
	return rmdir(dir)
}

func rmdir(dir string) error {
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}
