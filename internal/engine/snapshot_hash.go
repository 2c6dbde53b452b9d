package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// hashSnapshot finds the content hash of a snapshot, and completes its receipt.
func (e *Engine) hashSnapshot(ctx context.Context, id string) error {
	rows, err := e.db.FindSnapshots(ctx, id)
	if err != nil || len(rows) != 1 || rows[0].State != state.SnapshotReady {
		return err
	}
	d, err := readSnapshot(rows[0])
	if err != nil {
		return err
	}
	hash, herr := e.snaps.hash(ctx, d)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e.hashAgain(id, herr, func() { e.snaps.todo = append(e.snaps.todo, id) }) {
		return herr
	}
	own := map[string]bool{}
	for _, id := range d.Own {
		own[id] = true
	}
	var bytes, files int64
	for _, l := range e.layers.All() {
		if own[l.ID] {
			bytes += l.Bytes
			files += l.Files
		}
	}
	err = e.changeSnapshot(ctx, id, func(d *snapDoc) {
		s := &d.Snapshot
		if herr != nil {
			s.Receipt.Notes = append(s.Receipt.Notes, "the content could not be hashed: "+herr.Error())
			s.Receipt.HashPending = false
			return
		}
		s.Hash, s.Receipt.Hash, s.Receipt.HashPending = hash, hash, false
		s.Bytes, s.Receipt.Bytes, s.Receipt.Files = bytes, bytes, files
	})
	if err == nil {
		err = e.completeReceipts(ctx, id, hash)
	}
	if d.Silent && err == nil {
		err = e.removeSnapshot(ctx, id, true)
	}
	if herr != nil && bailey.CodeOf(herr) != bailey.CodeTooLarge {
		return herr
	}
	return err
}

// hashTries is how often what cannot be hashed is tried, and hashPause how long is waited
// between: reading may fail for a while. After a start of the daemon that begins anew.
const (
	hashTries = 5
	hashPause = time.Minute
)

// hashAgain says whether hashing is tried again after err, which again puts down then.
// What is too large for a hash stays so.
func (e *Engine) hashAgain(id string, err error, again func()) bool {
	e.snaps.mu.Lock()
	defer e.snaps.mu.Unlock()
	if err == nil || bailey.CodeOf(err) == bailey.CodeTooLarge || e.snaps.tries[id]+1 >= hashTries || e.snaps.timers == nil {
		delete(e.snaps.tries, id)
		return false
	}
	e.snaps.tries[id]++
	e.snaps.timers["hash "+id] = e.clock.AfterFunc(hashPause, func() {
		e.snaps.mu.Lock()
		defer e.snaps.mu.Unlock()
		if e.snaps.timers != nil {
			delete(e.snaps.timers, "hash "+id)
			again()
			e.nudgeSnapshots()
		}
	})
	return true
}

// completeReceipts tells the sandboxes that started from a snapshot its hash.
func (e *Engine) completeReceipts(ctx context.Context, id, hash string) error {
	for _, b := range e.list() {
		waits := func(r *record) bool {
			c := r.Sandbox.Receipt
			return c != nil && c.Snapshot == id && c.HashPending
		}
		if !waits(b.record()) {
			continue
		}
		err := e.update(ctx, b, func(r *record) {
			if waits(r) {
				c := *r.Sandbox.Receipt
				c.Hash, c.HashPending = hash, false
				r.Sandbox.Receipt = &c
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hashOf gives a snapshot's content hash: of the places and the canonical forms of
// the layers of each, the lowest first. It computes what is not known.
func (e *Engine) hashOf(ctx context.Context, d *snapDoc) (string, error) {
	var lines []string
	for _, root := range d.Roots {
		chain, err := e.layers.Chain(root.Chain)
		if err != nil {
			return "", err
		}
		line := strconv.Quote(root.Target)
		for _, l := range chain {
			hash, err := e.layers.Hash(ctx, l.ID)
			if err != nil {
				return "", err
			}
			line += " " + hash
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
