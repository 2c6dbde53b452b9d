package run

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// AuditPath is where the audit log of a data folder lies.
func AuditPath(f *folder.Folder) string { return filepath.Join(f.Path(), "audit") }

// logbook is the audit log, open from its first use to Wait.
type logbook struct {
	mu  sync.Mutex
	log *audit.Log
}

// Append writes a record to the audit log. After an error, what it stands for
// must not be done.
func (h *Host) Append(r *audit.Record) error { return h.appendAll(r) }

func (h *Host) appendAll(records ...*audit.Record) error {
	l, err := h.openLog()
	if err != nil {
		return err
	}
	return l.AppendAll(records...)
}

func (h *Host) openLog() (*audit.Log, error) {
	h.audit.mu.Lock()
	defer h.audit.mu.Unlock()
	if h.audit.log == nil {
		l, err := audit.Open(AuditPath(h.Folder), audit.Options{Lazy: true})
		if err != nil {
			return nil, err
		}
		h.audit.log = l
	}
	return h.audit.log, nil
}

// closeLog lets go of the log. Waiting for the disk would take longer than many
// a command; see audit.Options.Lazy. It is opened again if need be.
func (h *Host) closeLog() error {
	h.audit.mu.Lock()
	l := h.audit.log
	h.audit.log = nil
	h.audit.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.Close()
}

// begun is an act whose start is in the log.
type begun struct {
	host    *Host
	seq     int64
	sandbox string
	start   time.Time
}

// logStart writes the start of an act, behind other records.
func (h *Host) logStart(r *audit.Record, before ...*audit.Record) (begun, error) {
	if err := h.appendAll(append(before, r)...); err != nil {
		return begun{}, err
	}
	return begun{h, r.Seq, r.Sandbox, time.Now()}, nil
}

// ended writes how it ended: an end, or an error's code; then what else there is.
func (b begun) ended(end bailey.End, err error, after ...*audit.Record) error {
	r := &audit.Record{Kind: audit.KindEnd, Of: b.seq, Sandbox: b.sandbox, Outcome: &audit.Outcome{Duration: time.Since(b.start)}}
	if err != nil {
		r.Outcome.Error = string(bailey.CodeOf(err))
	} else {
		r.Exec = &audit.Exec{End: string(end.Reason), Status: end.ExitCode}
	}
	return b.host.appendAll(append([]*audit.Record{r}, after...)...)
}

// logLife says that a sandbox comes or goes.
func (b *builder) logLife(event string) error { return b.host.Append(b.life(event)) }

func (b *builder) life(event string) *audit.Record {
	r := &audit.Record{Kind: audit.KindLifecycle, Sandbox: b.run.ID(), Reason: event}
	if event == "create" {
		r.Detail = map[string]string{"level": b.req.Level.String(), "workspace": b.plan.Dir}
	}
	return r
}

// logged attends to a command between the records of its start and its end.
// Without the first it does not run.
func (b *builder) logged(attend func() error, out *Outcome) error {
	x := audit.NewExec("run", b.req.Command)
	x.Level, x.Workdir = b.req.Level.String(), b.req.Workdir
	act, err := b.host.logStart(&audit.Record{Kind: audit.KindExec, Sandbox: b.run.ID(), Exec: x}, b.life("create"))
	if err != nil {
		return err
	}
	err = attend()
	out.Failed = errors.Join(out.Failed, act.ended(out.End, err, b.life("destroy")))
	return err
}

// RunCommand runs a command in the sandbox and gives its output, up to limit bytes of
// each stream. Its start and its end are in the audit log; without the first it
// does not run.
func (s *Sandbox) RunCommand(ctx context.Context, spec guest.ExecSpec, stdin io.Reader, limit int64) (guest.RunResult, error) {
	x := audit.NewExec(spec.ID, spec.Argv)
	x.Level, x.Workdir = s.b.req.Level.String(), spec.Dir
	act, err := s.b.host.logStart(&audit.Record{Kind: audit.KindExec, Sandbox: s.Run.ID(), Exec: x})
	if err != nil {
		return guest.RunResult{}, err
	}
	res, err := s.Client.Run(ctx, spec, stdin, limit)
	var end bailey.End
	if err == nil {
		end = res.End.End()
	}
	return res, errors.Join(err, act.ended(end, err))
}
