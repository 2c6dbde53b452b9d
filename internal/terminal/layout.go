package terminal

import "os"

// Streams are the person's side: the files that Bailey itself was started
// with.
type Streams struct {
	In, Out, Err *os.File
}

// Std returns the process's own standard streams.
func Std() Streams { return Streams{os.Stdin, os.Stdout, os.Stderr} }

// Layout says what a command inside gets in place of the person's streams.
type Layout struct {
	// Pty: standard input and output are one pseudo-terminal of the sandbox.
	// Otherwise they are pipes.
	Pty bool
	// ErrPipe: standard error is a pipe of its own. Otherwise it is the
	// pseudo-terminal too.
	ErrPipe bool
}

// Layout chooses. Someone who types and reads on a terminal gets a terminal
// inside; a standard error that leads elsewhere (2>log) stays apart. As soon
// as input or output leads elsewhere the command is part of a pipeline, and
// sees pipes: raw mode would take the terminal away from a pager beside it,
// and a pseudo-terminal would change the bytes (line ends, colours).
func (s Streams) Layout() Layout {
	if Is(s.In) && Is(s.Out) {
		return Layout{Pty: true, ErrPipe: !Is(s.Err)}
	}
	return Layout{ErrPipe: true}
}

// Size is the size of the window that the person sees, for a new
// pseudo-terminal. It is 24 by 80 where nothing is a terminal.
func (s Streams) Size() Size {
	for _, f := range []*os.File{s.Out, s.In, s.Err} {
		if f == nil {
			continue
		}
		if size, ok := SizeOf(f); ok && size.Rows > 0 && size.Cols > 0 {
			return size
		}
	}
	return Size{Rows: 24, Cols: 80}
}

// Inside are the ends of a command's streams that stay outside. Which are set
// follows from the Layout. A Relay takes them over and closes them.
//
// The slave side of Pty has to be open in some process when a Relay starts,
// and until the command has it.
type Inside struct {
	Pty *os.File // the master of its pseudo-terminal
	In  *os.File // what is written here the command reads; nil if it reads nothing
	Out *os.File // what the command writes can be read here
	Err *os.File
}
