package run

import (
	"os"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// Capture takes a command's output instead of the person's streams.
type Capture struct {
	Stdin    *os.File // nil: the command reads end of file
	Out, Err *os.File // where its output goes, set by Do: unnamed files, read them from the start
}

// open makes the files and puts them in place of the person's streams.
func (c *Capture) open(s *terminal.Streams) error {
	for _, f := range []**os.File{&c.Out, &c.Err} {
		file, err := os.CreateTemp("", "bailey-output-")
		if err != nil {
			c.close()
			return bailey.Errorf(bailey.CodeStorage, "keep the command's output", "make room for temporary files", "%w", err)
		}
		os.Remove(file.Name())
		*f = file
	}
	*s = terminal.Streams{In: c.Stdin, Out: c.Out, Err: c.Err}
	return nil
}

// close lets go of the files of a command that did not run.
func (c *Capture) close() {
	for _, f := range []**os.File{&c.Out, &c.Err} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}
