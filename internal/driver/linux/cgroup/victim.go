//go:build linux

package cgroup

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Victim gives the name of the process that the kernel killed last because the
// group had reached its memory limit, or "" when that is not known: the kernel's
// log may be closed to this user, or may have gone over it.
//
// The name is one a sandbox chose. It is given as the log has it: at most 15
// bytes of the process's own, each that is not printable ASCII written as \xNN,
// so it can be shown on a terminal.
func (g *Group) Victim() string {
	dir := g.controllerDir(Memory)
	if dir == "" {
		return ""
	}
	fd, err := open(g.host.root+"/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	victim := ""
	buf := make([]byte, 8192) // the kernel's own limit for a record
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR || err == unix.EPIPE: // EPIPE: records were lost to newer ones
			continue
		case err != nil || n == 0:
			return victim
		}
		if name, ok := victimOf(string(buf[:n]), g.host.folderOf(g.name)); ok {
			victim = name
		}
	}
}

// victimOf reads one record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg):
//
//	priority,sequence,microseconds,flags;oom-kill:constraint=CONSTRAINT_MEMCG,
//	nodemask=…,oom_memcg=/bailey-x,task_memcg=/bailey-x,task=sh,pid=1,uid=0
//
// and gives the task's name if the limit was the one of the group whose folder
// has the name folder. The only part a sandbox can choose is the task's name,
// which comes after what is compared, and whose end is found from behind.
func victimOf(record, folder string) (string, bool) {
	head, text, ok := strings.Cut(record, ";")
	if !ok {
		return "", false
	}
	// Messages that a program wrote into the log have a facility other than
	// the kernel's, which is 0.
	priority, _, _ := strings.Cut(head, ",")
	if p, err := strconv.ParseUint(priority, 10, 32); err != nil || p>>3 != 0 {
		return "", false
	}
	text, _, _ = strings.Cut(text, "\n") // what follows is about the record
	if !strings.HasPrefix(text, "oom-kill:constraint=CONSTRAINT_MEMCG,") {
		return "", false
	}
	_, rest, ok := strings.Cut(text, ",oom_memcg=")
	if !ok {
		return "", false
	}
	memcg, rest, ok := strings.Cut(rest, ",task_memcg=")
	if !ok || memcg[strings.LastIndexByte(memcg, '/')+1:] != folder {
		return "", false
	}
	_, rest, ok = strings.Cut(rest, ",task=")
	if !ok {
		return "", false
	}
	end := strings.LastIndex(rest, ",pid=")
	if end < 0 {
		return "", false
	}
	name := rest[:end]
	// Escaped, 15 bytes are at most 60.
	if len(name) > 60 {
		return "", false
	}
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			return "", false
		}
	}
	return name, true
}
