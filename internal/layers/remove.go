package layers

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// Remove removes a layer that nothing stands on: no other layer, and none in the
// making. Whether a sandbox stands on it, the caller knows. One that is not there
// is no error.
func (s *Store) Remove(ctx context.Context, id string) error {
	gone, err := s.takeOut(id)
	if err != nil || gone == "" {
		return err
	}
	// From here on it is out of every list; Open ends what a death interrupts.
	return folder.RemoveTree(gone)
}

func (s *Store) takeOut(id string) (gone string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.known[id]
	if s.uses[id] > 0 || s.busy[id] {
		return "", bailey.Errorf(bailey.CodeBusy, "remove the layer "+id, "", "another layer stands on it")
	}
	if l == nil && !validID(id) {
		return "", nil
	}
	gone = filepath.Join(s.dir, gonePrefix+rand.Text())
	if err := os.Rename(s.path(id), gone); err != nil {
		if !os.IsNotExist(err) {
			return "", storage("remove the layer "+id, err)
		}
		gone = ""
	}
	if l != nil {
		delete(s.known, id)
		delete(s.uses, id)
		s.uses[l.Parent]--
		if l.FlatOf != "" {
			delete(s.flats, l.FlatOf)
		}
	}
	return gone, nil
}

// Unused gives the layers that no layer of heads stands on or is, those that
// stand on others first: the order in which Remove takes them. A layer that
// replaces the chain of one that is kept is kept too.
func (s *Store) Unused(heads map[string]bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := map[string]bool{}
	keep := func(id string) {
		for id != "" && !kept[id] {
			kept[id] = true
			if flat := s.flats[id]; flat != "" {
				kept[flat] = true
			}
			l := s.known[id]
			if l == nil {
				return
			}
			id = l.Parent
		}
	}
	for id := range heads {
		keep(id)
	}
	var list []string
	var add func(id string)
	below := map[string][]string{}
	for id, l := range s.known {
		below[l.Parent] = append(below[l.Parent], id)
	}
	done := map[string]bool{}
	add = func(id string) {
		if done[id] || kept[id] {
			return
		}
		done[id] = true
		for _, child := range below[id] {
			add(child)
		}
		list = append(list, id)
	}
	for id := range s.known {
		add(id)
	}
	return list
}
