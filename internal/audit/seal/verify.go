package seal

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/audit"
)

// Report is what a check found.
type Report struct {
	Records int64       `json:"records"`
	First   int64       `json:"first,omitempty"` // Seq of the first record
	Last    int64       `json:"last,omitempty"`
	Signed  int64       `json:"signed"`         // the last Seq that a signature covers; 0: none
	Key     string      `json:"key,omitempty"`  // that signed, hex
	Torn    int64       `json:"torn,omitempty"` // bytes of an unfinished record at the end; the next writer cuts them off
	Gaps    []GapRecord `json:"gaps,omitempty"`
	Fault   *Fault      `json:"fault,omitempty"` // nil: nothing is wrong
}

// GapRecord is a gap that the log itself tells of.
type GapRecord struct {
	Seq int64 `json:"seq"`
	audit.Gap
}

// Fault is the first thing that is wrong.
type Fault struct {
	Seq int64  `json:"seq"` // the first record that is bad or missing
	Why string `json:"why"`
}

// chain checks records in order.
type chain struct {
	rep  Report
	key  ed25519.PublicKey // nil: the first that is met
	prev string
	kind string // of the last record
	// seen is called for each good record.
	seen func(*audit.Record)
}

func (c *chain) bad(seq int64, format string, args ...any) bool {
	if c.rep.Fault == nil {
		c.rep.Fault = &Fault{seq, fmt.Sprintf(format, args...)}
	}
	return false
}

// add checks one line; false ends the check. want is the Seq it must have.
func (c *chain) add(line []byte, want int64) bool {
	r, err := audit.Parse(line)
	switch {
	case err != nil:
		return c.bad(want, "%v", err)
	case r.Seq < want:
		return c.bad(want, "record %d stands where %d must be: a record is repeated or out of order", r.Seq, want)
	case r.Seq > want && !(r.Kind == audit.KindGap && r.Gap != nil && r.Gap.Why == audit.GapLost && r.Gap.From == want && r.Gap.To == r.Seq-1):
		return c.bad(want, "records %d to %d are missing", want, r.Seq-1)
	case r.Prev != c.prev:
		return c.bad(r.Seq, "it does not follow on the record before it: that one was replaced or removed")
	}
	if r.Kind == audit.KindGap {
		if r.Gap == nil {
			return c.bad(r.Seq, "it is a gap that says nothing")
		}
		c.rep.Gaps = append(c.rep.Gaps, GapRecord{r.Seq, *r.Gap})
		if r.Gap.Why == audit.GapLost {
			c.bad(r.Gap.From, "records %d to %d were on disk and are gone", r.Gap.From, r.Gap.To) // go on: the rest is worth checking
		}
	}
	if r.Kind == audit.KindCheckpoint && !c.checkpoint(r) {
		return false
	}
	if c.rep.Records == 0 {
		c.rep.First = r.Seq
	}
	c.rep.Records++
	c.rep.Last, c.prev, c.kind = r.Seq, r.Hash, r.Kind
	if c.seen != nil {
		c.seen(r)
	}
	return true
}

func (c *chain) checkpoint(r *audit.Record) bool {
	if r.Checkpoint == nil {
		return c.bad(r.Seq, "it is a checkpoint without a signature")
	}
	key, err := hex.DecodeString(r.Checkpoint.Key)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return c.bad(r.Seq, "the checkpoint has no key")
	}
	if c.key == nil {
		c.key = key
	}
	if !c.key.Equal(ed25519.PublicKey(key)) {
		return c.bad(r.Seq, "the checkpoint is signed with another key (%s…)", r.Checkpoint.Key[:16])
	}
	signature, err := hex.DecodeString(r.Checkpoint.Signature)
	if err != nil || !ed25519.Verify(c.key, audit.CheckpointMessage(r.Seq, r.Prev), signature) {
		return c.bad(r.Seq, "the checkpoint's signature is wrong: it was forged, or something before it was changed")
	}
	c.rep.Signed, c.rep.Key = r.Seq-1, r.Checkpoint.Key
	return true
}

var zeros = strings.Repeat("0", 64)

// Verify checks the log in the folder dir. keys is the folder with the key, or
// empty for a copy of a log that is not beside one; then key may say which key
// must have signed. The log may be written to meanwhile. An error means that it
// could not be read.
func Verify(dir, keys string, key ed25519.PublicKey) (*Report, error) {
	c := &chain{key: key, prev: zeros}
	var last *signed
	var lastFault string
	if keys != "" {
		switch seed, err := readSeed(keys); {
		case err == nil:
			c.key = ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
			if last, err = readLast(keys, c.key); err != nil {
				lastFault = "what was signed last is written in keys/" + lastName + ": " + err.Error()
			}
		case !errors.Is(err, os.ErrNotExist):
			return nil, keyError(err)
		}
	}
	// The head is read before the records: what it speaks of was there then.
	head, err := audit.ReadHead(dir)
	if err != nil {
		return nil, err
	}
	c.seen = func(r *audit.Record) {
		if head != nil && r.Seq == head.Seq && r.Hash != head.Hash {
			c.bad(r.Seq, "it is not the record that the head says was on disk: the log was rewritten or replaced")
		}
		if last != nil && r.Seq == last.seq && (r.Kind != audit.KindCheckpoint || r.Prev != last.prev) {
			c.bad(r.Seq, "it is not the checkpoint that was signed: the log was rewritten or replaced")
		}
	}
	if err := c.walk(dir); err != nil {
		return nil, err
	}
	if c.rep.Fault != nil {
		return &c.rep, nil
	}
	end := c.rep.Last
	switch {
	case head == nil && end > 0:
		c.bad(end, "the head is missing or damaged, so that nobody knows whether this is the last record")
	case head != nil && head.Seq > end:
		c.bad(end+1, "records %d to %d were on disk and are missing at the end", end+1, head.Seq)
	case last != nil && last.seq > end:
		c.bad(end+1, "the log ends before record %d, which was signed: the end was cut off, or an old copy put in its place", last.seq)
	case last == nil && lastFault == "" && keys != "" && c.rep.Signed > 0 && c.key != nil:
		if _, err := os.Lstat(filepath.Join(keys, keyName)); err != nil {
			c.bad(c.rep.Signed+1, "the key that signed is not in %s", keys)
		}
	case lastFault != "":
		c.bad(end+1, "%s", lastFault)
	}
	return &c.rep, nil
}

func readLast(keys string, key ed25519.PublicKey) (*signed, error) {
	f, err := os.Open(filepath.Join(keys, lastName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := parseLast(f, key)
	if err == errNoLast {
		return nil, nil
	}
	return &s, err
}

// walk checks all segments.
func (c *chain) walk(dir string) error {
	r, err := audit.OpenReader(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	want, segment := int64(1), int64(0)
	for {
		line, err := r.Next()
		if err == io.EOF {
			break
		}
		if errors.Is(err, audit.ErrForm) {
			c.bad(want, "what stands there is no record")
			return nil
		}
		if err != nil {
			return err
		}
		if s := r.Segment(); s != segment {
			switch {
			case s > want:
				c.bad(want, "records %d to %d are missing: a segment was removed or cut", want, s-1)
				return nil
			case s < want, segment != 0 && c.kind != audit.KindRotate:
				c.bad(want, "the segment %d does not begin where the one before it ends", s)
				return nil
			}
			segment = s
		}
		if !c.add(line, want) {
			return nil
		}
		want = c.rep.Last + 1
	}
	torn, err := r.Torn()
	c.rep.Torn = int64(len(torn))
	return err
}
