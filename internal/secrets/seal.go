package secrets

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// label is what stands before a sealed text, within the seal, so that one file
// cannot be passed off as another.
func label(name string, version int) string {
	return "bailey secret 1\n" + name + "\n" + strconv.Itoa(version) + "\n"
}

func blobLabel(kind, name string) string { return "bailey sealed 1\n" + kind + "\n" + name + "\n" }

func (s *Store) seal(label string, value []byte) ([]byte, error) {
	id, err := s.identity(true)
	if err != nil {
		return nil, err
	}
	plain := append([]byte(label), value...)
	defer clear(plain)
	sealed, err := sealTo(plain, id.Recipient())
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeInternal, "seal the secret", "", "%w", err)
	}
	return sealed, nil
}

func (s *Store) unseal(label, name string, sealed []byte) ([]byte, error) {
	const what, fix = "unseal the secret", "bring back the key that it was sealed with, or set it again"
	id, err := s.identity(false)
	if err != nil {
		return nil, err
	}
	plain, err := unseal(sealed, id)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, fix, "the key %s does not open %s", s.KeyFile(), name)
	}
	value, ok := bytes.CutPrefix(plain, []byte(label))
	if !ok {
		clear(plain)
		return nil, bailey.Errorf(bailey.CodeStorage, what, fix, "what is sealed at the place of %s is something else", name)
	}
	return value, nil
}

func (s *Store) blobPath(kind, name string) (string, error) {
	for _, n := range []string{kind, name} {
		if err := CheckName(n); err != nil {
			return "", err
		}
	}
	return filepath.Join(s.dir(), "sealed", kind, name+".age"), nil
}

// Seal keeps a blob that is no secret for requests, such as the key of a
// lineage's certificate authority. kind and name are names as CheckName wants
// them. What was there is replaced.
func (s *Store) Seal(kind, name string, blob []byte) error {
	path, err := s.blobPath(kind, name)
	if err != nil {
		return err
	}
	sealed, err := s.seal(blobLabel(kind, name), blob)
	if err != nil {
		return err
	}
	if err := replace(path, sealed); err != nil {
		return bailey.Errorf(bailey.CodeStorage, "keep the sealed "+kind, "", "%w", err)
	}
	return nil
}

// Unseal gives back what Seal kept; code not_found if there is nothing. The
// caller wipes it.
func (s *Store) Unseal(kind, name string) ([]byte, error) {
	path, err := s.blobPath(kind, name)
	if err != nil {
		return nil, err
	}
	sealed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.Errorf(bailey.CodeNotFound, "unseal the "+kind, "", "there is no %s of %s", kind, name)
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "unseal the "+kind, "", "%w", err)
	}
	return s.unseal(blobLabel(kind, name), name, sealed)
}

// Destroy takes a sealed blob away for good. One that is not there is fine.
func (s *Store) Destroy(kind, name string) error {
	path, err := s.blobPath(kind, name)
	if err != nil {
		return err
	}
	if err := remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bailey.Errorf(bailey.CodeStorage, "destroy the "+kind, "", "%w", err)
	}
	return nil
}

// Sealed lists the names of a kind.
func (s *Store) Sealed(kind string) ([]string, error) {
	if err := CheckName(kind); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(filepath.Join(s.dir(), "sealed", kind))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.Errorf(bailey.CodeStorage, "list the sealed "+kind, "", "%w", err)
	}
	var all []string
	for _, f := range files {
		if n, ok := strings.CutSuffix(f.Name(), ".age"); ok {
			all = append(all, n)
		}
	}
	return all, nil
}
