package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// shown is a record with how it ended, if that is known.
type shown struct {
	*audit.Record
	End *audit.Record `json:"end,omitempty"`
}

// filter says which records are asked for.
func (f *auditFlags) filter() (func(*audit.Record) bool, error) {
	since, err := sinceTime(f.since, time.Now())
	if err != nil {
		return nil, err
	}
	if f.kind != "" && !slices.Contains(audit.Kinds, f.kind) {
		return nil, auditMisuse(fmt.Errorf("--kind %q is none of %s", f.kind, strings.Join(audit.Kinds, ", ")))
	}
	return func(r *audit.Record) bool {
		return !r.Time.Before(since) && (f.kind == "" || r.Kind == f.kind) && (f.sandbox == "" || r.Sandbox == f.sandbox) && (!f.denied || r.Decision == "deny")
	}, nil
}

func (f *auditFlags) show(home string, stdout io.Writer) error {
	wanted, err := f.filter()
	if err != nil {
		return err
	}
	if f.last < 0 {
		return auditMisuse(errors.New("-n is a number above zero"))
	}
	r, err := audit.OpenReader(auditPath(home))
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was done yet
	}
	if err != nil {
		return err
	}
	defer r.Close()
	var list []*shown
	open := map[int64]*shown{} // by Seq, those that have not ended
	for {
		rec, err := nextRecord(r)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if start := open[rec.Of]; rec.Kind == audit.KindEnd && start != nil && f.kind != audit.KindEnd {
			start.End = rec
			delete(open, rec.Of)
			continue
		}
		if !wanted(rec) || rec.Kind == audit.KindEnd && f.kind != audit.KindEnd {
			continue // an end whose start is not shown
		}
		s := &shown{Record: rec}
		list = append(list, s)
		open[rec.Seq] = s
		if f.last > 0 && len(list) > f.last {
			delete(open, list[0].Seq)
			list = list[1:]
		}
	}
	for _, s := range list {
		if err := f.print(stdout, s); err != nil {
			return err
		}
	}
	return nil
}

func nextRecord(r *audit.Reader) (*audit.Record, error) {
	line, err := r.Next()
	if err != nil {
		return nil, err
	}
	rec, err := audit.Parse(line)
	if err != nil {
		return nil, fmt.Errorf("a line of segment %d: %w; `bailey audit verify` says more", r.Segment(), err)
	}
	return rec, nil
}

// follow prints each record once, as it comes, until ctx ends.
func (f *auditFlags) follow(ctx context.Context, home string, stdout io.Writer) error {
	wanted, err := f.filter()
	if err != nil {
		return err
	}
	if err := os.Mkdir(auditPath(home), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	changed, err := watch(auditPath(home))
	if err != nil {
		return err
	}
	defer changed.Close()
	stop := context.AfterFunc(ctx, func() { changed.SetReadDeadline(time.Now()) })
	defer stop()
	r, err := audit.OpenReader(auditPath(home))
	if err != nil {
		return err
	}
	defer r.Close()
	fresh := f.since == "" // then what is there already is not shown
	for events := make([]byte, 64<<10); ; {
		for {
			rec, err := nextRecord(r)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			if !fresh && wanted(rec) {
				if err := f.print(stdout, &shown{Record: rec}); err != nil {
					return err
				}
			}
		}
		fresh = false
		if _, err := changed.Read(events); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// watch gives a file that can be read when something in a folder has changed.
func watch(dir string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the folder: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch the folder: %w", err)
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}

func (f *auditFlags) print(w io.Writer, s *shown) error {
	if f.json {
		return json.NewEncoder(w).Encode(s)
	}
	colour, off := "", ""
	if file, ok := w.(*os.File); ok && terminal.Is(file) && os.Getenv("NO_COLOR") == "" {
		if s.Decision == "deny" || s.Kind == audit.KindGap {
			colour, off = "\x1b[31m", "\x1b[0m"
		}
	}
	sandbox := s.Sandbox
	if sandbox == "" {
		sandbox = "-"
	}
	_, err := fmt.Fprintf(w, "%s%6d  %s  %-10s %-10s %s%s\n", colour, s.Seq, s.Time.Local().Format("2006-01-02 15:04:05"),
		terminal.Printable(s.Kind), terminal.Shorten(sandbox, 32), describeRecord(s), off)
	return err
}

// describeRecord says in one line what a record is about. Nothing in it can steer a
// terminal.
func describeRecord(s *shown) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	text := func(t string) {
		if t != "" {
			words = append(words, terminal.Shorten(t, 120))
		}
	}
	text(s.Decision)
	if g := s.Egress; g != nil {
		text(g.Method)
		url := g.Host
		if g.Scheme != "" {
			url = g.Scheme + "://" + url
		}
		if g.Port != 0 {
			url = fmt.Sprintf("%s:%d", url, g.Port)
		}
		text(url + g.Path)
		if g.Opaque {
			text("uninspected")
		}
		if len(g.Secrets) > 0 {
			text("secrets=" + strings.Join(g.Secrets, ","))
		}
	}
	text(s.Reason)
	if s.Rule != "" {
		text("rule=" + s.Rule)
	}
	if x := s.Exec; x != nil && s.Kind != audit.KindEnd {
		text(x.Program)
		if x.Arguments > 0 {
			add("(%d arguments)", x.Arguments)
		}
	}
	if g := s.Gap; g != nil {
		text(g.Why)
	}
	if s.Checkpoint != nil {
		text("signed")
	}
	for _, k := range []string{"level", "workspace", "source", "digest", "changes", "done", "conflicts", "refused"} {
		if v := s.Detail[k]; v != "" {
			text(k + "=" + v)
		}
	}
	end := s.End
	if s.Kind == audit.KindEnd {
		end = s.Record
		add("of %d", s.Of)
	}
	if end != nil {
		text("→")
		if x := end.Exec; x != nil {
			text(x.End)
			add("%d", x.Status)
		}
		text(end.Reason)
		if o := end.Outcome; o != nil {
			if o.Status != 0 {
				add("%d", o.Status)
			}
			text(o.Error)
			if o.Sent+o.Received > 0 {
				add("↑%d ↓%d bytes", o.Sent, o.Received)
			}
			if o.Scrubbed > 0 {
				add("scrubbed=%d", o.Scrubbed)
			}
			add("%v", o.Duration.Round(100*time.Microsecond))
		}
	}
	return strings.Join(words, " ")
}
