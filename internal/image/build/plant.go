package build

import (
	"context"
	"errors"
	"io"

	"github.com/bailey-sandbox/bailey/internal/image"
)

// layer gives the layer that a step has made before, or makes it. make writes it
// as a tar into add.
func (s *stage) layer(ctx context.Context, k string, c any, make func(add func(context.Context, io.Reader) error) error) error {
	if !s.b.Spec.NoCache {
		l, known, whole := s.b.Store.Step(k)
		if whole {
			s.b.say("as before: the layer is there\n")
			s.push(l, k, c)
			return nil
		}
		if known {
			s.b.say("it was done before, but its layer is gone: it is done again\n")
		}
	}
	var l image.Layer
	err := make(func(ctx context.Context, r io.Reader) (err error) {
		l, err = s.b.Hands.Layer(ctx, r)
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range l.Notes {
		s.b.say("%s\n", n)
	}
	if err := s.b.Store.SetStep(k, l); err != nil {
		return err
	}
	s.push(l, k, c)
	return nil
}

// plant makes a layer of a tree. Its key has no text of the step in it: the same
// files give the same layer.
func (s *stage) plant(ctx context.Context, t *tree, c any) error {
	content, err := t.digest()
	if err != nil {
		return err
	}
	return s.layer(ctx, key(s.key, "files", content), c, func(add func(context.Context, io.Reader) error) error {
		return piped(func(w io.Writer) error { return t.writeTo(w) }, func(r io.Reader) error { return add(ctx, r) })
	})
}

// piped lets one function write what the other reads. The reader's error counts
// unless the writer's was first.
func piped(write func(io.Writer) error, read func(io.Reader) error) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		done <- err
	}()
	err := read(r)
	r.CloseWithError(io.ErrClosedPipe)
	if werr := <-done; werr != nil && !errors.Is(werr, io.ErrClosedPipe) {
		return werr
	}
	return err
}
