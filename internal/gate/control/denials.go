package control

import (
	"errors"

	"github.com/bailey-sandbox/bailey"
)

// maxDenials is how many different denials of a sandbox are kept.
const maxDenials = 256

// denials are those of one sandbox that differ.
type denials struct {
	list    []Denial
	index   map[Denial]int
	further int64
}

// add counts a denial and tells whether it is new.
func (s *denials) add(d Denial) bool {
	key := Denial{What: d.What, Rule: d.Rule, Reason: d.Reason}
	if i, ok := s.index[key]; ok {
		s.list[i].Count++
		return false
	}
	if len(s.list) == maxDenials {
		s.further++
		return false
	}
	if s.index == nil {
		s.index = map[Denial]int{}
	}
	d.Count = 1
	s.index[key] = len(s.list)
	s.list = append(s.list, d)
	return true
}

var (
	errUnnamed   = errors.New("it names no sandbox")
	errListeners = errors.New("it does not come with two listeners")
	errNoNames   = errors.New("the file of the table of names does not come with it")
	errNoPolicy  = errors.New("it comes without a policy")
)

func malformed(err error) error {
	return bailey.Errorf(bailey.CodeProtocol, "understand the starter", "", "%w", err)
}
