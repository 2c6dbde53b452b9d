package changes

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Names in the run's folder.
const (
	journalName   = "journal"
	originalsName = "originals"
)

const journalVersion = 1

// act is what a step does to the host.
type act string

const (
	actAdd     act = "add"     // a name that was free
	actReplace act = "replace" // one file by another, in one step
	actDelete  act = "delete"
	actRmdir   act = "rmdir"
	actChmod   act = "chmod"
)

// phase is how far a step is known to have come. A step is planned before
// anything of it is on the host's disk, and staged before it takes effect.
type phase string

const (
	planned phase = "plan"
	staged  phase = "staged"
	done    phase = "done"
	dropped phase = "dropped" // it did not happen
	undoing phase = "undoing"
	undone  phase = "undone"
)

// step is one line of the journal, and what all lines of one number say
// together: a later line's fields replace an earlier one's where they are set.
type step struct {
	N     int    `json:"n"`
	Phase phase  `json:"phase"`
	Root  int    `json:"root,omitempty"`
	Path  []byte `json:"path,omitempty"` // base64 in the file: names are bytes
	Temp  string `json:"temp,omitempty"` // a name in Path's folder
	Act   act    `json:"act,omitempty"`
	// Old is the host's file before, New the one that was put there.
	Old *workspace.Identity `json:"old,omitempty"`
	New *workspace.Identity `json:"new,omitempty"`
	// Undo is the inode of what Revert puts back; 0 while not known.
	Undo uint64 `json:"undo,omitempty"`
	// counted says that the report counts it.
	counted bool
}

func (s *step) path() string { return string(s.Path) }

// pending says that it is not known whether the step took effect.
func (s *step) pending() bool { return s.Phase == planned || s.Phase == staged || s.Phase == undoing }

type journalHead struct {
	Version int    `json:"bailey_journal"`
	Run     string `json:"run"`
}

// journal is the log of what Apply and Revert do, one JSON line each. It is
// written before the act it speaks of.
type journal struct {
	f     *os.File
	out   *bufio.Writer
	steps []*step
}

// openJournal opens or starts the journal of the run, whose lock the caller
// holds.
func openJournal(run *folder.Run) (*journal, error) {
	f, err := os.OpenFile(filepath.Join(run.Dir(), journalName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{f: f}
	end, err := j.read(run.ID())
	if err == nil {
		// A line that a death cut short never counted.
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("the journal of run %s: %w", run.ID(), err)
	}
	j.out = bufio.NewWriterSize(f, 1<<16)
	if end == 0 {
		b, _ := json.Marshal(journalHead{journalVersion, run.ID()})
		j.out.Write(append(b, '\n'))
		if err := j.sync(); err != nil {
			f.Close()
			return nil, err
		}
	}
	return j, nil
}

func (j *journal) read(id string) (int64, error) {
	steps, end, err := parseJournal(j.f, id)
	j.steps = steps
	return end, err
}

// parseJournal reads a journal, and gives its steps by number and where its
// last whole line ends.
func parseJournal(r io.Reader, id string) ([]*step, int64, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	var steps []*step
	end := int64(0)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return steps, end, nil
		}
		if err != nil {
			return nil, 0, err
		}
		if end == 0 {
			var h journalHead
			if err := strict(line, &h); err != nil || h.Version != journalVersion || h.Run != id {
				return nil, 0, errors.New("it is of another version or another run")
			}
		} else {
			var l step
			if err := strict(line, &l); err != nil {
				return nil, 0, err
			}
			if l.N == len(steps) && l.Phase == planned {
				if !filepath.IsLocal(l.path()) || l.Root < 0 || !validTemp(l.Temp) {
					return nil, 0, errors.New("it names a path outside its root")
				}
				steps = append(steps, &l)
			} else if l.N < 0 || l.N >= len(steps) {
				return nil, 0, errors.New("its steps are out of order")
			} else {
				steps[l.N].merge(&l)
			}
		}
		end += int64(len(line))
	}
}

func strict(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func (s *step) merge(l *step) {
	s.Phase = l.Phase
	if l.Act != "" {
		s.Act = l.Act
	}
	if l.Old != nil {
		s.Old = l.Old
	}
	if l.New != nil {
		s.New = l.New
	}
	s.Undo = l.Undo
}

const tempPrefix = ".bailey-"

func tempName(run string, n int) string { return tempPrefix + run + "-" + strconv.Itoa(n) }

func validTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && !strings.ContainsAny(name, "/\x00")
}

// plan starts a step. It counts only once sync has returned.
func (j *journal) plan(run string, root int, path string) (*step, error) {
	s := &step{N: len(j.steps), Phase: planned, Root: root, Path: []byte(path), Temp: tempName(run, len(j.steps))}
	j.steps = append(j.steps, s)
	return s, j.line(s)
}

func (j *journal) line(s *step) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	hook()
	_, err = j.out.Write(append(b, '\n'))
	return err
}

// hook is called between all steps that a death can fall between, for tests.
var hook = func() {}

// note writes that a step has reached a phase. The process may die right
// after; a machine may not, without sync.
func (j *journal) note(s *step, p phase) error {
	s.Phase = p
	l := *s
	l.Path, l.Temp, l.Root = nil, "", 0
	if err := j.line(&l); err != nil {
		return err
	}
	defer hook()
	return j.out.Flush()
}

// sync waits until the journal is on the disk.
func (j *journal) sync() error {
	if err := j.out.Flush(); err != nil {
		return err
	}
	return unix.Fdatasync(int(j.f.Fd()))
}

func (j *journal) close() error {
	err := j.out.Flush()
	if cerr := j.f.Close(); err == nil {
		err = cerr
	}
	return err
}
