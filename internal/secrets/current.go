package secrets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Current is what the gate needs of a secret.
type Current struct {
	Name    string
	Version int
	// Value is nil for a revoked one.
	Value *Value
	// Old are values that must not be put in any more, but are still taken out
	// of answers: replaced ones, and a revoked one.
	Old []*Value
	// Expires is when a command's value is asked for again; zero never.
	Expires time.Time
}

// Current unseals a secret, or runs its command.
func (s *Store) Current(ctx context.Context, name string) (*Current, error) {
	e, err := s.load(name)
	if err != nil {
		return nil, err
	}
	c := &Current{Name: name, Version: e.info().Version}
	last := len(e.Versions) - 1
	for i, v := range e.Versions {
		if i < last && time.Since(v.Replaced) > KeepOld || v.Source == Command && (i < last || e.Revoked) {
			continue // a command that is not to be run has no value
		}
		plain, err := s.unseal(label(name, v.Number), name, v.Sealed)
		if err != nil {
			return nil, err
		}
		if v.Source == Command {
			command := string(plain)
			clear(plain)
			if plain, err = runCommand(ctx, name, command); err != nil {
				return nil, err
			}
			c.Expires = time.Now().Add(CommandTTL)
		}
		if i == last && !e.Revoked {
			c.Value = NewValue(plain)
		} else {
			c.Old = append(c.Old, NewValue(plain))
		}
	}
	return c, nil
}

// stamp tells that a secret's file is another than before, without reading it.
type stamp struct {
	size, changed int64
	inode         uint64
}

func (s *Store) stamp(name string) (stamp, error) {
	fi, err := os.Stat(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no secret %s", name)
	}
	if err != nil {
		return stamp{}, bailey.Errorf(bailey.CodeNotFound, "read the secret", "bailey secret set "+name, "%w", err)
	}
	return stamp{fi.Size(), fi.ModTime().UnixNano(), inode(fi)}, nil
}
