package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The daemon is killed again and again: sandboxes live on, the next daemon finds
// them, and learns how they ended. Nothing is left open.
func TestDaemonKilled(t *testing.T) {
	s := start(t, newHome(t), self(t))
	pid := s.reach(0)
	first := openFiles(t, s.cmd.Process.Pid)
	boxes := map[string]int{}
	for i := range 5 {
		boxes[fmt.Sprint("box-", i)] = ask[int](s, fmt.Sprint("make box-", i))
	}
	orphan := ask[int](s, "orphan")
	for range 4 {
		syscall.Kill(pid, syscall.SIGKILL)
		pid = s.reach(pid)
		list := ask[[]Kept](s, "list")
		if len(list) != 5 {
			t.Fatalf("%+v", list)
		}
		for _, k := range list {
			if k.Ended || k.Pid != boxes[k.ID] || len(k.Names) != 1 || syscall.Kill(k.Pid, 0) != nil {
				t.Errorf("%+v", k)
			}
		}
	}
	gone(t, orphan)
	for id, box := range boxes {
		if status := ask[int](s, "end "+id); status != 7 {
			t.Errorf("%s ended with %d", id, status)
		}
		gone(t, box)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	pid = s.reach(pid)
	for _, k := range ask[[]Kept](s, "list") {
		if !k.Ended || syscall.WaitStatus(k.Status).ExitStatus() != 7 {
			t.Errorf("%+v", k)
		}
		ask[int](s, "drop "+k.ID)
	}
	if now := openFiles(t, s.cmd.Process.Pid); now != first {
		t.Errorf("%d files were open, and %d are", first, now)
	}
	if files, _ := os.ReadDir(filepath.Join(s.home, "keeper", "ended")); len(files) != 0 {
		t.Errorf("%v", files)
	}
	s.tell("exit")
	if status := s.left(); status != 0 {
		t.Errorf("status %d", status)
	}
	gone(t, pid)
}

// The keeper is killed: its daemon leaves, and the sandboxes with it. The next
// keeper begins with nothing but their ends.
func TestKeeperKilled(t *testing.T) {
	home := newHome(t)
	s := start(t, home, self(t))
	pid := s.reach(0)
	dead := ask[int](s, "make dead")
	syscall.Kill(pid, syscall.SIGKILL)
	pid = s.reach(pid)
	ask[int](s, "end dead")
	box := ask[int](s, "make box")
	s.cmd.Process.Kill()
	s.left()
	gone(t, dead)
	// Both are orphans of somebody else now, who may not reap: what counts is that
	// they have ended.
	over(t, pid)
	over(t, box)

	s = start(t, home, self(t))
	s.reach(pid)
	if list := ask[[]Kept](s, "list"); len(list) != 1 || list[0].ID != "dead" || !list[0].Ended {
		t.Errorf("%+v", list)
	}
	s.cmd.Process.Signal(unix.SIGTERM)
	s.left()
}

// over waits until a process has ended, reaped or not.
func over(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20000); n != 1 {
		t.Errorf("process %d is there (%v)", pid, err)
	}
}

// The program on disk is exchanged: SIGHUP to the keeper, or a word of the daemon,
// starts the new one, and sandboxes live on.
func TestUpgrade(t *testing.T) {
	home := newHome(t)
	program := filepath.Join(home, "daemon")
	install := func(version string) {
		t.Helper()
		text := fmt.Sprintf("#!/bin/sh\nexec %s \"$1\" %s\n", self(t), version)
		if err := os.WriteFile(program+".new", []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(program+".new", program); err != nil {
			t.Fatal(err)
		}
	}
	install("one")
	s := start(t, home, program)
	pid := s.reach(0)
	box := ask[int](s, "make box")
	install("two")
	s.cmd.Process.Signal(unix.SIGHUP)
	pid = s.reach(pid)
	if v := ask[string](s, "version"); v != "two" {
		t.Errorf("version %s", v)
	}
	install("three")
	s.tell("upgrade")
	pid = s.reach(pid)
	if v := ask[string](s, "version"); v != "three" {
		t.Errorf("version %s", v)
	}
	if list := ask[[]Kept](s, "list"); len(list) != 1 || list[0].Pid != box || list[0].Ended || syscall.Kill(box, 0) != nil {
		t.Errorf("%+v", list)
	}
	// A program that does not start is tried again while somebody depends on it.
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	gone(t, pid)
	if syscall.Kill(box, 0) != nil {
		t.Error("the sandbox has gone")
	}
	install("four")
	s.reach(pid)
	if v := ask[string](s, "version"); v != "four" {
		t.Errorf("version %s", v)
	}
	s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.left(); status != 7 {
		t.Errorf("status %d", status)
	}
	over(t, box)
}

// The keeper leaves with its daemon where nothing depends on them.
func TestLeaves(t *testing.T) {
	if status := start(t, newHome(t), self(t), "fail").left(); status != 3 {
		t.Errorf("a daemon that never comes up: status %d", status)
	}
	if status := start(t, newHome(t), "/no/such/program").left(); status != 125 {
		t.Errorf("no daemon: status %d", status)
	}
	s := start(t, newHome(t), self(t))
	s.reach(0)
	s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.left(); status != 7 {
		t.Errorf("told to leave: status %d", status)
	}
	// One that leaves on purpose with sandboxes alive is started again.
	s = start(t, newHome(t), self(t))
	pid := s.reach(0)
	ask[int](s, "make box")
	s.tell("exit")
	pid = s.reach(pid)
	ask[int](s, "end box")
	s.tell("exit")
	if status := s.left(); status != 0 {
		t.Errorf("status %d", status)
	}
	gone(t, pid)
}

// A data folder has one keeper.
func TestOneKeeper(t *testing.T) {
	home := newHome(t)
	s := start(t, home, self(t))
	pid := s.reach(0)
	if status := start(t, home, self(t)).left(); status != 125 {
		t.Errorf("status %d", status)
	}
	if again := s.reach(0); again != pid {
		t.Errorf("the daemon is %d, and was %d", again, pid)
	}
	s.cmd.Process.Signal(unix.SIGTERM)
	s.left()
}
