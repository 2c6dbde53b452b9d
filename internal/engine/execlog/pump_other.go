//go:build !linux

package execlog

import (
	"os"

	"github.com/bailey-sandbox/bailey"
)

type source struct{}

var errLinux = bailey.Errorf(bailey.CodeNotAvailable, "take the output of a command", "", "it needs splice(2) of Linux")

// Pump is for Linux.
func (l *Log) Pump(i Stream, pipe *os.File, closed func()) error { return errLinux }

// PumpTerminal is for Linux.
func (l *Log) PumpTerminal(master, r, w *os.File, closed func()) error { return errLinux }

func (s *stream) release()    {}
func (s *stream) mark() int64 { return s.end }
