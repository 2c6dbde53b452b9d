package seal

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
)

// The files below keys.
const (
	keyName  = "audit.key"  // the seed, hex
	lastName = "audit.last" // the last checkpoint that is on disk
)

const lastSize = 512

// Key signs checkpoints. Once it is open it needs no path any more, so that a
// process may give up its rights.
type Key struct {
	private ed25519.PrivateKey
	last    *os.File
}

func keyError(err error) error {
	return bailey.Errorf(bailey.CodeAudit, "use the audit log's key", "check the folder keys of Bailey's data folder", "%w", err)
}

// OpenKey opens the key in the folder keys, and makes both at first use.
func OpenKey(keys string) (*Key, error) {
	if err := os.Mkdir(keys, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, keyError(err)
	}
	seed, err := readSeed(keys)
	if errors.Is(err, os.ErrNotExist) {
		if err = makeSeed(keys); err == nil {
			seed, err = readSeed(keys)
		}
	}
	if err != nil {
		return nil, keyError(err)
	}
	last, err := os.OpenFile(filepath.Join(keys, lastName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, keyError(err)
	}
	return &Key{private: ed25519.NewKeyFromSeed(seed), last: last}, nil
}

func readSeed(keys string) ([]byte, error) {
	path := filepath.Join(keys, keyName)
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s may be read by others (%v)", path, fi.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%s holds no key", path)
	}
	return seed, nil
}

// makeSeed makes the key whole or not at all; who is first wins.
func makeSeed(keys string) error {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) // never fails
	f, err := os.CreateTemp(keys, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(seed) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), filepath.Join(keys, keyName)); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// Public gives the public key.
func (k *Key) Public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

// Close lets go of the files.
func (k *Key) Close() error { return k.last.Close() }

// Sign makes a checkpoint (audit.Signer).
func (k *Key) Sign(seq int64, prev string) (*audit.Checkpoint, error) {
	return &audit.Checkpoint{
		Key:       hex.EncodeToString(k.Public()),
		Signature: hex.EncodeToString(ed25519.Sign(k.private, audit.CheckpointMessage(seq, prev))),
	}, nil
}

// Keep writes down the last checkpoint (audit.Signer).
func (k *Key) Keep(seq int64, prev string, c *audit.Checkpoint) error {
	if old, err := parseLast(k.last, k.Public()); err == nil && old.seq >= seq {
		return nil
	}
	line := fmt.Sprintf("bailey-audit-last 1 %d %s %s", seq, prev, c.Signature)
	if _, err := k.last.WriteAt(fmt.Appendf(nil, "%-*s\n", lastSize-1, line), 0); err != nil {
		return err
	}
	return k.last.Sync()
}

// signed is what was signed last.
type signed struct {
	seq  int64
	prev string
}

var errNoLast = errors.New("nothing was signed yet")

func parseLast(f *os.File, key ed25519.PublicKey) (s signed, err error) {
	b := make([]byte, lastSize)
	n, _ := f.ReadAt(b, 0)
	if n == 0 {
		return s, errNoLast
	}
	var signature string
	if _, err := fmt.Sscanf(string(b[:n]), "bailey-audit-last 1 %d %s %s", &s.seq, &s.prev, &signature); err != nil {
		return s, errors.New("it cannot be read")
	}
	sig, err := hex.DecodeString(signature)
	if err != nil || !ed25519.Verify(key, audit.CheckpointMessage(s.seq, s.prev), sig) {
		return s, errors.New("its signature is wrong")
	}
	return s, nil
}
