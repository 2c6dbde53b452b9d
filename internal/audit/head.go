package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The head is a file beside the segments that says up to where the log was on
// disk, and whether it was in use since. It is what shows that records went
// missing at the end, where a chain of hashes shows nothing. It has two slots
// that are written in turn, so that a torn write leaves the other.

const slotSize = 512

type headState struct {
	turn int64  // counts the writes; the slot is its parity
	open bool   // records may be there that are not on disk
	boot string // boot id of the kernel under which it was written
	link link   // the last record that is on disk; its kind is not kept
}

func (h headState) slot() []byte {
	state := "synced"
	if h.open {
		state = "open"
	}
	s := fmt.Sprintf("bailey-audit-head 1 %d %s %s %d %s", h.turn, state, h.boot, h.link.seq, hex.EncodeToString(h.link.hash[:]))
	sum := sha256.Sum256([]byte(s))
	return fmt.Appendf(nil, "%-*s\n", slotSize-1, s+" "+hex.EncodeToString(sum[:]))
}

func parseSlot(b []byte) (h headState, ok bool) {
	s := strings.TrimRight(string(b), " \n")
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return h, false
	}
	sum := sha256.Sum256([]byte(s[:i]))
	if s[i+1:] != hex.EncodeToString(sum[:]) {
		return h, false
	}
	var version int
	var state, hash string
	if _, err := fmt.Sscanf(s[:i], "bailey-audit-head %d %d %s %s %d %s", &version, &h.turn, &state, &h.boot, &h.link.seq, &hash); err != nil || version != 1 {
		return h, false
	}
	h.open = state == "open"
	return h, decodeDigest(&h.link.hash, hash)
}

// readHead gives the newer of the slots that are whole.
func readHead(f *os.File) (h headState, ok bool, err error) {
	var b [2 * slotSize]byte
	n, err := unix.Pread(int(f.Fd()), b[:], 0)
	if err != nil {
		return h, false, err
	}
	h, ok = parseHead(b[:n])
	return h, ok, nil
}

func parseHead(b []byte) (h headState, ok bool) {
	for i := 0; i+slotSize <= len(b); i += slotSize {
		if s, whole := parseSlot(b[i : i+slotSize]); whole && (!ok || s.turn > h.turn) {
			h, ok = s, true
		}
	}
	return h, ok
}

// Head is the last record that the head says was on disk.
type Head struct {
	Seq  int64
	Hash string
}

// ReadHead reads the head of the log in the folder dir; nil if it has none that
// is whole.
func ReadHead(dir string) (*Head, error) {
	f, err := os.Open(filepath.Join(dir, headName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, ok, err := readHead(f)
	if err != nil || !ok {
		return nil, err
	}
	return &Head{h.link.seq, hex.EncodeToString(h.link.hash[:])}, nil
}

func (l *Log) putHead(h headState) error {
	h.turn++
	b := h.slot()
	n, err := unix.Pwrite(int(l.head.Fd()), b, h.turn%2*slotSize)
	if err == nil && n < len(b) {
		err = unix.ENOSPC
	}
	return err
}

// checkHead compares the head with the log's end the first time, writes down
// what is missing, and sees that the head says that the log is in use. The log
// is locked.
func (l *Log) checkHead() error {
	if l.checked {
		return l.markOpen()
	}
	n, err := unix.Pread(int(l.head.Fd()), l.now[:], 0)
	if err != nil {
		return err
	}
	h, ok := parseHead(l.now[:n])
	k := l.tail.link
	var gap *Gap
	next := k.seq + 1
	switch {
	case ok && h.link.seq > k.seq:
		gap, next = &Gap{Why: GapLost, From: k.seq + 1, To: h.link.seq, Hash: hex.EncodeToString(h.link.hash[:])}, h.link.seq+1
	case ok && h.link.seq == k.seq && h.link.hash != k.hash:
		gap = &Gap{Why: GapLost, From: k.seq, To: k.seq, Hash: hex.EncodeToString(h.link.hash[:])}
	case ok && h.boot != l.boot && (h.open || h.link.seq != k.seq), !ok && k.seq > 0:
		gap = &Gap{Why: GapPower, From: next}
	}
	if gap == nil && ok && h.open && h.boot == l.boot {
		l.checked, l.seen = true, l.now // it says so already
		return nil
	}
	h.open, h.boot = true, l.boot
	if gap != nil {
		if err := l.own(&Record{Kind: KindGap, Gap: gap}, next); err != nil {
			return err
		}
	}
	// The gap is in the log before the head forgets what it says.
	if err := l.putHead(h); err != nil {
		return err
	}
	l.checked = true
	return nil
}

// markOpen says in the head that the log is in use, if it does not yet.
// Somebody else may have said meanwhile that all is on disk.
func (l *Log) markOpen() error {
	n, err := unix.Pread(int(l.head.Fd()), l.now[:], 0)
	if err != nil {
		return err
	}
	if n == len(l.now) && l.now == l.seen {
		return nil // as it was when it said so
	}
	h, ok := parseHead(l.now[:n])
	if ok && h.open && h.boot == l.boot {
		l.seen = l.now
		return nil
	}
	h.open, h.boot = true, l.boot
	return l.putHead(h)
}
