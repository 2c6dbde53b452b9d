package starter

import (
	"os"
	"os/exec"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// gateCapabilities are what a gate that root starts uses before it gives them up
// too: it reads a root file system as it is, gives the audit log to its own user,
// and becomes that user.
var gateCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_SYS_ADMIN,
}

// startBounded starts a gate that can have no other capabilities. It gives all up
// itself, but by then it has a dozen threads, each of which has to be stopped for
// each capability; a thread that starts a process has only itself to ask.
func startBounded(cmd *exec.Cmd) error {
	if os.Geteuid() != 0 {
		return cmd.Start()
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends, with what it has lost
		for c := uintptr(0); c <= 63; c++ {
			// What cannot be dropped is the gate's to complain about.
			if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil {
				break
			} else if has == 1 && !slices.Contains(gateCapabilities, c) {
				_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			}
		}
		started <- cmd.Start()
	}()
	return <-started
}
