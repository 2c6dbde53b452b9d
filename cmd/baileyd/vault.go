package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/starter"
	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/internal/secrets/vault"
)

const vaultUsage = `Usage: baileyd vault --home DIR

Tells a gate the values of secrets, and their changes, on its standard output,
which is a pipe. On its standard input comes what the gate needs (package
starter), from whoever has started it; on descriptor 3 go the answers. It ends
when either of the two does.

`

func vaultCommand(ctx context.Context, args []string, _, stderr io.Writer) int {
	if len(args) != 2 || args[0] != "--home" || !filepath.IsAbs(args[1]) {
		fmt.Fprint(stderr, vaultUsage)
		return bailey.ExitBailey
	}
	if err := hide(); err != nil {
		return fail(stderr, false, bailey.Errorf(bailey.CodeSetupFailed, "hold the secrets", "", "%w", err))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store := secrets.Open(args[1])
	v, err := vault.Open(ctx, store, os.Stdout)
	if err != nil {
		return fail(stderr, false, err)
	}
	defer v.Close()
	go func() { // the gate is gone when nobody reads the pipe
		for fds := []unix.PollFd{{Fd: int32(os.Stdout.Fd())}}; ; {
			if n, err := unix.Poll(fds, -1); n > 0 || err != nil && err != unix.EINTR {
				cancel()
				return
			}
		}
	}()
	go func() {
		defer cancel()
		e := &errands{store: store, vault: v, answers: json.NewEncoder(os.NewFile(3, "answers"))}
		for d := json.NewDecoder(os.Stdin); ; {
			var next starter.Errand
			if d.Decode(&next) != nil {
				return
			}
			e.run(next)
		}
	}()
	<-v.Done()
	return 0
}

// errands are what a vault is asked for.
type errands struct {
	store *secrets.Store
	vault *vault.Vault

	making [64]sync.Mutex // of authorities, by a hash of the lineage: one has one

	mu      sync.Mutex
	answers *json.Encoder
}

// alone gives the lock of a lineage.
func (e *errands) alone(lineage string) *sync.Mutex {
	return &e.making[crc32.ChecksumIEEE([]byte(lineage))%uint32(len(e.making))]
}

// run does one, in the background where it can take its time.
func (e *errands) run(next starter.Errand) {
	if next.Policy != nil {
		p, err := combine(*next.Policy)
		if err != nil {
			return // the gate, which is asked for the same, says so
		}
		for _, name := range secretNames(p) {
			e.vault.Watch(name)
		}
	}
	if next.Lineage != "" {
		go func() {
			own := e.alone(next.Lineage)
			own.Lock()
			text, err := sealedAuthority(e.store, next.Lineage)
			own.Unlock()
			e.vault.Give(lineageKind, next.Lineage, text, err)
			clear(text)
		}()
	}
	if next.Forget != "" {
		go func() {
			own := e.alone(next.Forget)
			own.Lock()
			err := e.store.Destroy(lineageKind, lineageName(next.Forget))
			own.Unlock()
			done := starter.Done{ID: next.ID}
			if err != nil && !errors.As(err, &done.Error) {
				done.Error = bailey.Errorf(bailey.CodeInternal, "forget the lineage", "", "%w", err)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			_ = e.answers.Encode(done) // nobody is left to tell
		}()
	}
}

// hide keeps the values out of core dumps and from other processes of this user.
func hide() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
