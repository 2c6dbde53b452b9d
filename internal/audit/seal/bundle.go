package seal

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
)

// header is the first line of a bundle. The lines behind it are the log's own,
// the last of them a checkpoint.
type header struct {
	Bundle    int    `json:"bailey_audit_bundle"` // 1
	Key       string `json:"key"`
	First     int64  `json:"first"`
	Last      int64  `json:"last"`
	Hash      string `json:"hash"` // of the last
	Signature string `json:"signature"`
}

func (h header) message() []byte {
	return fmt.Appendf(nil, "bailey audit bundle 1\n%d\n%d\n%s\n", h.First, h.Last, h.Hash)
}

// ErrNothing means that no record is as young as was asked for.
var ErrNothing = errors.New("there is no record since then")

// Export writes a bundle of what the log in dir has since a time, up to its last
// checkpoint; make one before. The log must be whole.
func (k *Key) Export(w io.Writer, dir string, since time.Time) (records int64, err error) {
	h := header{Bundle: 1, Key: hex.EncodeToString(k.Public())}
	err = each(dir, func(line []byte) error {
		r, err := audit.Parse(line)
		if err != nil {
			return err
		}
		if h.First == 0 && !r.Time.Before(since) {
			h.First = r.Seq
		}
		if h.First != 0 && r.Kind == audit.KindCheckpoint {
			h.Last, h.Hash = r.Seq, r.Hash
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if h.Last == 0 {
		return 0, ErrNothing
	}
	h.Signature = hex.EncodeToString(ed25519.Sign(k.private, h.message()))
	out := bufio.NewWriterSize(w, 1<<16)
	if err := json.NewEncoder(out).Encode(h); err != nil {
		return 0, err
	}
	err = each(dir, func(line []byte) error {
		r, err := audit.Parse(line)
		if err != nil {
			return err
		}
		if r.Seq < h.First {
			return nil
		}
		if r.Seq > h.Last {
			return io.EOF
		}
		records++
		out.Write(line) // an error stays, for Flush
		return out.WriteByte('\n')
	})
	return records, errors.Join(err, out.Flush())
}

// each gives the lines of a log until there are no more or do gives io.EOF.
func each(dir string, do func(line []byte) error) error {
	r, err := audit.OpenReader(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		line, err := r.Next()
		if err == nil {
			err = do(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// VerifyBundle checks a bundle. key is the key that must have signed; nil takes
// the bundle's own word for it, which the reader has to compare.
func VerifyBundle(in io.Reader, key ed25519.PublicKey) (*Report, error) {
	c := &chain{key: key}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), audit.MaxLine+1)
	// The scanner takes a last line without an end, which a cut file has.
	lines.Split(func(data []byte, _ bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		return 0, nil, nil
	})
	if !lines.Scan() {
		return nil, errors.Join(errors.New("it is no bundle"), lines.Err())
	}
	var h header
	if json.Unmarshal(lines.Bytes(), &h) != nil || h.Bundle != 1 {
		return nil, errors.New("it is no bundle of an audit log")
	}
	own, err := hex.DecodeString(h.Key)
	if err != nil || len(own) != ed25519.PublicKeySize {
		return nil, errors.New("the bundle has no key")
	}
	if c.key == nil {
		c.key = own
	}
	c.rep.Key = h.Key
	signature, _ := hex.DecodeString(h.Signature)
	if !c.key.Equal(ed25519.PublicKey(own)) || !ed25519.Verify(c.key, h.message(), signature) {
		c.bad(h.First, "the bundle's first line is signed with another key, or was changed")
		return &c.rep, nil
	}
	for want := h.First; lines.Scan(); want = c.rep.Last + 1 {
		if c.rep.Records == 0 {
			if r, err := audit.Parse(lines.Bytes()); err == nil {
				c.prev = r.Prev // what is before is not in the bundle; the signature covers it
			}
		}
		if want > h.Last {
			c.bad(want, "there is more behind the last record, %d", h.Last)
			break
		}
		if !c.add(lines.Bytes(), want) {
			break
		}
	}
	if err := lines.Err(); err != nil {
		c.bad(c.rep.Last+1, "what stands there is no record")
	}
	switch {
	case c.rep.Fault != nil:
	case c.rep.Last != h.Last:
		c.bad(max(c.rep.Last+1, h.First), "the bundle is cut: records up to %d are missing", h.Last)
	case c.prev != h.Hash:
		c.bad(h.Last, "the last record is not the one that was exported")
	}
	return &c.rep, nil
}
