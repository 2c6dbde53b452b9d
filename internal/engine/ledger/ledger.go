package ledger

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/audit"
)

// Ledger appends to the log. Its methods may be called by any number of goroutines.
type Ledger struct{ log *audit.Log }

// Open opens the log of a data folder. The gate signs it.
func Open(home string) (*Ledger, error) {
	l, err := audit.Open(filepath.Join(home, "audit"), audit.Options{})
	if err != nil {
		return nil, err
	}
	return &Ledger{l}, nil
}

// Close lets go of the log, which is on disk then.
func (l *Ledger) Close() error { return l.log.Close() }

// of says on whose behalf something is done, and more.
func of(by string, more ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(more); i += 2 {
		if more[i+1] != "" {
			m[more[i]] = more[i+1]
		}
	}
	if by != "" {
		m["by"] = by
	}
	return m
}

// Event records an event of the engine: sandbox.created is the lifecycle record
// "created", and so on; the end of a command is that of its start. Those that say
// nothing of a sandbox or its snapshots, and a command's start, leave nothing. seq is
// the event's number, by which a record that a crash has doubled is known.
func (l *Ledger) Event(ev api.Event, seq int64) error {
	about, what, _ := strings.Cut(ev.Kind, ".")
	r := &audit.Record{Kind: audit.KindLifecycle, Sandbox: ev.Sandbox, Reason: what, Detail: of("", "event", strconv.FormatInt(seq, 10), "owner", ev.Owner)}
	switch {
	case ev.Kind == "exec.ended":
		var d struct {
			ID  string      `json:"id"`
			End *bailey.End `json:"end"`
		}
		if json.Unmarshal(ev.Data, &d) != nil || d.End == nil {
			return nil
		}
		r.Kind, r.Exec = audit.KindExec, &audit.Exec{ID: d.ID, End: string(d.End.Reason), Status: d.End.ExitCode}
	case about == "sandbox":
		var d struct {
			Session string        `json:"session"`
			Why     bailey.Reason `json:"why"`
			End     *bailey.End   `json:"why_ended"`
			Error   *bailey.Error `json:"error"`
		}
		if len(ev.Data) > 0 && json.Unmarshal(ev.Data, &d) == nil {
			r.Session = d.Session
			if d.Why != "" {
				r.Detail["why"] = string(d.Why)
			}
			if d.End != nil {
				r.Detail["end"] = string(d.End.Reason)
			}
			if d.Error != nil {
				r.Detail["error"] = string(d.Error.Code)
			}
		}
	case about == "snapshot":
		var d struct {
			ID string `json:"id"`
		}
		r.Reason = ev.Kind
		if len(ev.Data) > 0 && json.Unmarshal(ev.Data, &d) == nil && d.ID != "" {
			r.Detail["snapshot"] = d.ID
		}
	default:
		return nil
	}
	return l.log.Append(r)
}

// Command is a command that is to be started.
type Command struct {
	Sandbox, Session, ID string
	Args                 []string
	Level                bailey.Isolation
	Workdir              string
	By                   string // who starts it
}

// Started records the start of a command, before it is one.
func (l *Ledger) Started(c Command) error {
	x := audit.NewExec(c.ID, c.Args)
	x.Level, x.Workdir = c.Level.String(), c.Workdir
	return l.log.Append(&audit.Record{Kind: audit.KindExec, Sandbox: c.Sandbox, Session: c.Session, Reason: "started", Exec: x, Detail: of(c.By)})
}

// Act is something whose start is recorded.
type Act struct {
	log     *audit.Log
	seq     int64
	sandbox string
	began   time.Time
}

// maxPath bounds a path in a record, in bytes; the sandbox chooses them.
const maxPath = 4096

func printable(path string) string {
	if len(path) > maxPath {
		path = path[:maxPath]
	}
	return strings.ToValidUTF8(path, "\uFFFD")
}

// File records that a file inside is to be written, removed or moved: act is one
// of write, remove, move, mkdir and unpack. to is where it is moved to, or "".
func (l *Ledger) File(sandbox, act, path, to, by string) (Act, error) {
	return l.begin(&audit.Record{Kind: audit.KindFile, Sandbox: sandbox, Reason: act, Detail: of(by, "path", printable(path), "to", printable(to))})
}

// Port records that somebody outside connects to a port inside.
func (l *Ledger) Port(sandbox string, port int, by string) (Act, error) {
	return l.begin(&audit.Record{Kind: audit.KindPort, Sandbox: sandbox, Reason: "connect", Detail: of(by, "port", strconv.Itoa(port))})
}

// Exposed records that a port inside is reachable from outside, or is no longer: act
// is expose or close.
func (l *Ledger) Exposed(sandbox, act string, port int, how, by string) error {
	return l.log.Append(&audit.Record{Kind: audit.KindPort, Sandbox: sandbox, Reason: act, Detail: of(by, "port", strconv.Itoa(port), "how", how)})
}

func (l *Ledger) begin(r *audit.Record) (Act, error) {
	if err := l.log.Append(r); err != nil {
		return Act{}, err
	}
	return Act{l.log, r.Seq, r.Sandbox, time.Now()}, nil
}

// End records how it ended: sent are bytes into the sandbox, received those from it, hash
// the SHA-256 of a file that was written, in hex. Nobody waits for it: the act is
// over.
func (a Act) End(sent, received int64, hash string, err error) {
	if a.log == nil {
		return
	}
	o := &audit.Outcome{Sent: sent, Received: received, Duration: time.Since(a.began)}
	if err != nil {
		o.Error = string(bailey.CodeOf(err))
	}
	a.log.Later(&audit.Record{Kind: audit.KindEnd, Of: a.seq, Sandbox: a.sandbox, Outcome: o, Detail: of("", "sha256", hash)})
}
