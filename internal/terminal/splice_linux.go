package terminal

import "golang.org/x/sys/unix"

// splicing wraps a mover of output: where splice(2) works between the two
// descriptors the bytes stay in the kernel. One of them has to be a pipe, and
// a file must not be open for appending.
func (r *Relay) splicing(in, out int, buffered func() (int, error)) func() (int, error) {
	if !isKind(in, unix.S_IFIFO) || !spliceTarget(out) {
		return buffered
	}
	refused := false
	return func() (int, error) {
		if refused {
			return buffered()
		}
		// The budget's lock must not be held while the reader pauses.
		got, err := wait(out, true, descriptor(r.cut.read), -1)
		switch {
		case err != nil:
			return 0, err
		case got.hangup:
			return 0, unix.EPIPE
		case !got.ready:
			return 0, unix.ECANCELED
		}
		n, err := r.budget.take(chunk, func(n int) (int, error) { return splice(in, out, n) }, probe(in))
		if err == unix.EINVAL {
			refused = true // a file system that does not do it
			return buffered()
		}
		return n, err
	}
}

// inputMover returns the function that moves the next piece of the person's
// input to the command's pipe.
func inputMover(in, to, stop int) func() (int, error) {
	buffered := readMover(in, to, stop)
	if !isKind(to, unix.S_IFIFO) || !isKind(in, unix.S_IFIFO) && !isKind(in, unix.S_IFREG) {
		return buffered
	}
	refused := false
	return func() (int, error) {
		if refused {
			return buffered()
		}
		got, err := wait(to, true, stop, -1)
		switch {
		case err != nil:
			return 0, err
		case got.hangup || !got.ready:
			return 0, unix.EPIPE
		}
		n, err := splice(in, to, chunk)
		if err == unix.EINVAL {
			refused = true
			return buffered()
		}
		return n, err
	}
}

func splice(from, to, n int) (int, error) {
	moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	return int(max(moved, 0)), err
}

func isKind(fd int, kind uint32) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == kind
}

func spliceTarget(fd int) bool {
	if isKind(fd, unix.S_IFIFO) {
		return true
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return isKind(fd, unix.S_IFREG) && err == nil && flags&unix.O_APPEND == 0
}
