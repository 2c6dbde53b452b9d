package terminal

// macOS has no splice(2).

func (r *Relay) splicing(_, _ int, buffered func() (int, error)) func() (int, error) {
	return buffered
}

func inputMover(in, to, stop int) func() (int, error) { return readMover(in, to, stop) }
