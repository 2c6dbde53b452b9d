package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// prompt reads one line from a terminal without showing it. An interrupt ends
// it, with the terminal as it was.
func prompt(ctx context.Context, in *os.File, prompts io.Writer, name string) ([]byte, error) {
	fd := int(in.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	silent := *before
	silent.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, setTermios, &silent); err != nil {
		return nil, err
	}
	defer func() { _ = unix.IoctlSetTermios(fd, setTermios, before) }()
	fmt.Fprintf(prompts, "Value of %s: ", name)
	defer fmt.Fprintln(prompts)
	type answer struct {
		line []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() { // it may wait for ever; the program ends then
		line, err := bufio.NewReaderSize(in, secrets.MaxValue+3).ReadSlice('\n')
		if err == io.EOF {
			err = nil
		}
		got <- answer{line, err}
	}()
	select {
	case a := <-got:
		return a.line, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
