package audit

import (
	"encoding/hex"
	"errors"
)

// Signer has the key for checkpoints; package seal has one. It is a seam so that
// the command line does not link the code of signatures.
type Signer interface {
	// Sign makes a checkpoint for the record seq, behind one whose hash is prev.
	// It is called with the log locked.
	Sign(seq int64, prev string) (*Checkpoint, error)
	// Keep writes down, outside of the log, the last checkpoint that is on disk.
	Keep(seq int64, prev string, c *Checkpoint) error
}

// checkpoint signs what is there, unless that is done.
func (l *Log) checkpoint() error {
	l.since, l.last = 0, l.opt.Clock()
	if l.tail.link.seq == 0 || l.tail.link.kind == KindCheckpoint {
		return nil
	}
	seq := l.tail.link.seq + 1
	c, err := l.opt.Signer.Sign(seq, hex.EncodeToString(l.tail.link.hash[:]))
	if err != nil {
		return err
	}
	r := &Record{Kind: KindCheckpoint, Checkpoint: c, Seq: seq, Prev: hex.EncodeToString(l.tail.link.hash[:])}
	if err := l.own(r, seq); err != nil {
		return err
	}
	l.signed = r
	l.wake()
	return nil
}

// Checkpoint signs now what was written since the last checkpoint, by whomever.
func (l *Log) Checkpoint() error {
	if l.opt.Signer == nil {
		return failure(errors.New("this writer has no key"))
	}
	l.write.Lock()
	defer l.write.Unlock()
	if err := lockFile(l.lock); err != nil {
		return failure(err)
	}
	defer unlockFile(l.lock)
	err := l.catchUp()
	if err == nil {
		err = l.checkpoint()
	}
	if err != nil {
		return failure(err)
	}
	return nil
}
