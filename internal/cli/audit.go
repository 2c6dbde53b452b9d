package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// appender writes a record to the audit log.
type appender func(*audit.Record) error

// withLog opens the audit log for commands that run nothing.
func withLog(f *folder.Folder, do func(appender) error) error {
	l, err := audit.Open(run.AuditPath(f), audit.Options{Lazy: true})
	if err != nil {
		return err
	}
	err = do(l.Append)
	return errors.Join(err, l.Close())
}

// logged does something with a run's changes between two records of the audit
// log: what is to be done (apply, revert, discard), and how it ended. Without the
// first it is not done. set, which may be nil, is told by number and digest.
func logged(write appender, id, event string, set *changes.Set, do func() (*changes.Report, error)) (*changes.Report, error) {
	r := &audit.Record{Kind: audit.KindFile, Sandbox: id, Reason: event}
	if set != nil {
		list, err := json.Marshal(set.Changes)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(list)
		r.Detail = map[string]string{"changes": strconv.Itoa(len(set.Changes)), "digest": "sha256:" + hex.EncodeToString(sum[:])}
	}
	start := time.Now()
	if err := write(r); err != nil {
		return nil, err
	}
	rep, err := do()
	end := &audit.Record{Kind: audit.KindEnd, Sandbox: id, Of: r.Seq, Reason: event, Outcome: &audit.Outcome{Duration: time.Since(start)}}
	if err != nil {
		end.Outcome.Error = string(bailey.CodeOf(err))
	}
	if rep != nil {
		end.Detail = map[string]string{
			"done": strconv.Itoa(rep.Done), "conflicts": strconv.Itoa(len(rep.Conflicts)), "refused": strconv.Itoa(len(rep.Refused)),
		}
	}
	return rep, errors.Join(err, write(end))
}

// discardLogged throws a run away, with the records of that.
func discardLogged(write appender, r *folder.Run) error {
	_, err := logged(write, r.ID(), "discard", nil, func() (*changes.Report, error) { return nil, r.Remove() })
	return err
}
