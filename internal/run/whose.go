package run

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxProcesses bounds how many processes are looked at for the owner of a
// connection.
const maxProcesses = 4096

// ProgramOf names the program that holds a connection: the one whose end has the
// address client in the network of the process pid. It gives "" where that cannot
// be known. It is what the kernel says, but a sandbox can run any file under any
// name: it helps a person to understand, and proves nothing.
func ProgramOf(pid int, client string) string {
	_, port, err := net.SplitHostPort(client)
	n, perr := strconv.ParseUint(port, 10, 16)
	if pid <= 0 || err != nil || perr != nil {
		return ""
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	own, err := os.Readlink(filepath.Join(proc, "ns/net"))
	if err != nil {
		return ""
	}
	sockets := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		socketsAt(filepath.Join(proc, "net", table), uint16(n), sockets)
	}
	if len(sockets) == 0 {
		return ""
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return ""
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	seen := 0
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		p := filepath.Join("/proc", name)
		if ns, err := os.Readlink(filepath.Join(p, "ns/net")); err != nil || ns != own {
			continue
		}
		if seen++; seen > maxProcesses {
			return ""
		}
		fds, err := os.ReadDir(filepath.Join(p, "fd"))
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(p, "fd", fd.Name())); err == nil && sockets[to] {
				exe, _ := os.Readlink(filepath.Join(p, "exe"))
				return exe
			}
		}
	}
	return ""
}

// socketsAt adds the connected sockets of a table of proc(5) whose own port is
// port, as links in /proc/PID/fd name them.
func socketsAt(table string, port uint16, into map[string]bool) {
	f, err := os.Open(table)
	if err != nil {
		return
	}
	defer f.Close()
	const most = 4 << 20 // bytes
	const listening = "0A"
	for lines := bufio.NewScanner(io.LimitReader(f, most)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] == listening {
			continue
		}
		_, own, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(own, 16, 16); err == nil && uint16(n) == port && fields[9] != "0" {
			into["socket:["+fields[9]+"]"] = true
		}
	}
}
