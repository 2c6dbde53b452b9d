package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// timeForm is fixed in length, always UTC.
const timeForm = "2006-01-02T15:04:05.000000000Z"

// Digest is a record's hash.
type digest = [sha256.Size]byte

// The end of a line: ,"hash":"64 hex digits"}
const (
	hashMark = `,"hash":"`
	tailLen  = len(hashMark) + 2*sha256.Size + len(`"}`)
)

// appendRecord writes a record's line with its line end and gives its hash.
//
// hash = SHA-256(prev as 32 bytes ‖ canonical bytes). The canonical bytes are
// the line without its member hash, which is the last one.
func appendRecord(b []byte, seq int64, at time.Time, middle []byte, prev digest) ([]byte, digest) {
	start := len(b)
	b = append(b, `{"seq":`...)
	b = strconv.AppendInt(b, seq, 10)
	b = append(b, `,"time":"`...)
	b = at.UTC().AppendFormat(b, timeForm)
	b = append(b, '"')
	b = append(b, middle...)
	b = append(b, `,"prev":"`...)
	b = hex.AppendEncode(b, prev[:])
	b = append(b, '"', '}')
	sum := sumOf(prev, b[start:])
	b = append(b[:len(b)-1], hashMark...)
	b = hex.AppendEncode(b, sum[:])
	return append(b, '"', '}', '\n'), sum
}

func sumOf(prev digest, canonical []byte) (sum digest) {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(canonical)
	h.Sum(sum[:0])
	return sum
}

// ErrForm is of what is no record.
var ErrForm = errors.New("it is no record")

// link is what the chain needs of a line.
type link struct {
	seq  int64
	kind string
	hash digest
}

// parseLink reads only that, without looking into the rest.
func parseLink(line []byte) (l link, err error) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	number, rest, found := bytes.Cut(rest, []byte(`,"time":"`))
	if !ok || !found || len(rest) < len(timeForm)+tailLen || len(line) > MaxLine {
		return l, ErrForm
	}
	if l.seq, err = strconv.ParseInt(string(number), 10, 64); err != nil || l.seq < 1 || string(number) != strconv.FormatInt(l.seq, 10) {
		return l, ErrForm
	}
	kind, ok := bytes.CutPrefix(rest[len(timeForm):], []byte(`","kind":"`))
	end := bytes.IndexByte(kind, '"')
	if !ok || end < 0 {
		return l, ErrForm
	}
	l.kind = string(kind[:end])
	tail := line[len(line)-tailLen:]
	sum, ok := bytes.CutPrefix(tail, []byte(hashMark))
	if !ok || !bytes.HasSuffix(sum, []byte(`"}`)) {
		return l, ErrForm
	}
	if !decodeDigest(&l.hash, string(sum[:len(sum)-2])) {
		return l, ErrForm
	}
	return l, nil
}

// decodeDigest takes lower case only: one value, one spelling.
func decodeDigest(d *digest, s string) bool {
	if len(s) != 2*len(d) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(d[:], []byte(s))
	return err == nil
}

// Parse reads a line, without its line end, and checks that its hash is that of
// its bytes and its prev. Members that this version does not know are let be.
func Parse(line []byte) (*Record, error) {
	l, err := parseLink(line)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(line, r); err != nil {
		return nil, ErrForm
	}
	var prev digest
	if !decodeDigest(&prev, r.Prev) || r.Seq != l.seq || r.Kind != l.kind || r.Hash != hex.EncodeToString(l.hash[:]) {
		return nil, ErrForm
	}
	canonical := append(bytes.Clone(line[:len(line)-tailLen]), '}')
	if sumOf(prev, canonical) != l.hash {
		return nil, errors.New("its hash is not that of its content")
	}
	return r, nil
}

// CheckpointMessage is what a checkpoint's signature is over: the Seq of its
// record and the hash of the record before it, which stands for all before.
func CheckpointMessage(seq int64, prev string) []byte {
	return []byte("bailey audit checkpoint 1\n" + strconv.FormatInt(seq, 10) + "\n" + prev + "\n")
}
