package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// The states of a template.
const (
	templateBuilding = "building"
	templateReady    = "ready"
	templateFailed   = "failed"
)

// templateDoc is what is known about a template: a row of the database, in JSON.
// While it is built anew, and when that has failed, Digest is of what was built
// before.
type templateDoc struct {
	Template api.Template `json:"template"`
	Log      string       `json:"log,omitempty"` // file of the last build's log, in the folder of builds
}

var templateForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}(:[A-Za-z0-9_][A-Za-z0-9._-]{0,62})?$`)

// templateName gives a template's whole name, NAME:TAG.
func templateName(s string) (string, error) {
	name, _, tagged := strings.Cut(s, ":")
	if !templateForm.MatchString(s) || name == image.HostSource || name == "scratch" {
		return "", bailey.Errorf(bailey.CodeUsage, "name the template", "write NAME or NAME:TAG of letters, digits, dots, dashes and underscores; host and scratch are taken",
			"%.100q cannot be a template's name", s)
	}
	if !tagged {
		s += ":latest"
	}
	return s, nil
}

// template finds a template's row; ok is false where there is none.
func (e *Engine) template(ctx context.Context, name string) (d templateDoc, owner string, ok bool, err error) {
	rows, err := e.db.Templates(ctx, name)
	if err != nil || len(rows) == 0 || name == "" {
		return d, "", false, err
	}
	if err := json.Unmarshal(rows[0].Doc, &d); err != nil {
		return d, "", false, bailey.Errorf(bailey.CodeStorage, "read the template "+name, "delete it and build it again", "%w", err)
	}
	return d, rows[0].Owner, true, nil
}

// putTemplate writes a template's row.
func (e *Engine) putTemplate(ctx context.Context, owner string, d templateDoc) error {
	doc, err := json.Marshal(d)
	if err != nil {
		return err
	}
	t := d.Template
	return e.db.Update(ctx, func(tx *sql.Tx) error {
		return state.PutTemplate(ctx, tx, state.Template{Name: t.Name, Owner: owner, State: t.State, Digest: t.Digest, Created: t.Created, Doc: doc})
	})
}

func noTemplate(name string) error {
	return bailey.Errorf(bailey.CodeNotFound, "use the template "+name, "`bailey template ls` lists them", "there is no such template")
}

// knownTemplate finds a template by what a caller calls it.
func (e *Engine) knownTemplate(ctx context.Context, ref string) (templateDoc, string, error) {
	name, err := templateName(ref)
	if err != nil {
		return templateDoc{}, "", noTemplate(ref)
	}
	d, owner, ok, err := e.template(ctx, name)
	if err == nil && !ok {
		err = noTemplate(ref)
	}
	return d, owner, err
}

// originOfTemplate is what a sandbox of a template that was built starts from.
func (e *Engine) originOfTemplate(ctx context.Context, ref string) (*origin, error) {
	d, _, err := e.knownTemplate(ctx, ref)
	if err != nil {
		return nil, err
	}
	t := d.Template
	if t.Digest == "" {
		return nil, bailey.Errorf(bailey.CodeConflict, "use the template "+t.Name, "wait until it is built, or build it again", "it is %s, and there is nothing built before", t.State)
	}
	root, err := e.rootOf(t.Digest, t.Name)
	if err != nil {
		return nil, err
	}
	o := &origin{Rootfs: &root, Template: t.Name, Digest: t.Digest}
	if t.State == templateFailed {
		o.Notes = append(o.Notes, "the last build of the template "+t.Name+" has failed: this is what was built before")
	}
	if len(t.Start) > 0 || len(t.Ready) > 0 {
		o.Ready = func(ctx context.Context, sandbox string) error { return e.startTemplate(ctx, sandbox, t) }
	}
	return o, nil
}

// Templates lists templates, by name.
func (e *Engine) Templates(ctx context.Context, who Caller) ([]api.Template, error) {
	rows, err := e.db.Templates(ctx, "")
	if err != nil {
		return nil, err
	}
	held, err := e.holders(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]api.Template, 0, len(rows))
	for _, r := range rows {
		var d templateDoc
		if err := json.Unmarshal(r.Doc, &d); err != nil {
			d.Template = api.Template{Name: r.Name, State: templateFailed, Created: r.Created,
				Error: bailey.Errorf(bailey.CodeStorage, "read the template "+r.Name, "delete it and build it again", "%w", err)}
		}
		d.Template.Refs = held[d.Template.Digest]
		list = append(list, d.Template)
	}
	return list, nil
}

// TagTemplate gives a template another name, NAME or NAME:TAG, in place of what
// had it. Building or deleting either leaves the other as it is.
func (e *Engine) TagTemplate(ctx context.Context, who Caller, ref, tag string) (api.Template, error) {
	d, _, err := e.knownTemplate(ctx, ref)
	if err != nil {
		return api.Template{}, err
	}
	if d.Template.Digest == "" {
		return api.Template{}, bailey.Errorf(bailey.CodeConflict, "tag the template "+ref, "build it first", "there is nothing built")
	}
	name, err := templateName(tag)
	if err != nil {
		return api.Template{}, err
	}
	return d.Template, e.tagTemplate(ctx, who, d, name)
}

func (e *Engine) tagTemplate(ctx context.Context, who Caller, d templateDoc, name string) error {
	if name == d.Template.Name {
		return nil
	}
	if err := e.mayReplace(ctx, who, name); err != nil {
		return err
	}
	n, ok := e.images.store.NameOf(templateNames + d.Template.Name)
	if !ok {
		return noTemplate(d.Template.Name)
	}
	n.Name = templateNames + name
	if err := e.images.store.SetName(n); err != nil {
		return err
	}
	d.Template.Name, d.Template.State, d.Template.Error = name, templateReady, nil
	return e.putTemplate(ctx, who.Name, d)
}

// mayReplace says whether the caller may give something the name.
func (e *Engine) mayReplace(ctx context.Context, who Caller, name string) error {
	_, owner, ok, err := e.template(ctx, name)
	if err == nil && ok && !who.may(owner) {
		return bailey.Errorf(bailey.CodeForbidden, "replace the template "+name, "choose another name", "it is %s's", owner)
	}
	return err
}

// DeleteTemplate removes a template; what stands on it goes on. A build of it that
// goes on is ended.
func (e *Engine) DeleteTemplate(ctx context.Context, who Caller, ref string) error {
	d, owner, err := e.knownTemplate(ctx, ref)
	if err != nil {
		return err
	}
	name := d.Template.Name
	if !who.may(owner) {
		return bailey.Errorf(bailey.CodeForbidden, "delete the template "+name, "", "it is %s's", owner)
	}
	if err := e.endBuild(ctx, name); err != nil {
		return err
	}
	err = e.db.Update(ctx, func(tx *sql.Tx) error { return state.DropTemplate(ctx, tx, name) })
	if err == nil {
		err = e.images.store.DropName(templateNames + name)
	}
	e.dropWarm(func(w *warm) bool { return w.kind.template == name }, false)
	if err == nil {
		err = e.dropLogs(ctx)
	}
	if err == nil {
		err = e.clearImages(ctx)
	}
	return err
}

// ExportTemplate writes a template as an OCI layout in a tar.
func (e *Engine) ExportTemplate(ctx context.Context, who Caller, ref string, w io.Writer) error {
	d, _, err := e.knownTemplate(ctx, ref)
	if err != nil {
		return err
	}
	if d.Template.Digest == "" {
		return bailey.Errorf(bailey.CodeConflict, "export the template "+ref, "build it first", "there is nothing built")
	}
	return e.images.store.Export(ctx, d.Template.Digest, d.Template.Name, w)
}

// Bounds of a start command and its ready check.
const (
	readyWithin = 60 * time.Second
	readyEvery  = 200 * time.Millisecond
	readyLog    = 2000 // bytes of what they printed that an error shows
)

// templateCaller starts what templates start, while the sandbox's op is held: no
// checkpoint can be made before it.
var templateCaller = Caller{Name: "template", Admin: true}

// startTemplate starts a template's command as the exec "start", and waits until
// its check ends with status 0. The sandbox runs; nobody has it yet.
func (e *Engine) startTemplate(ctx context.Context, sandbox string, t api.Template) error {
	who := templateCaller
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, errors.New("it took longer than "+readyWithin.String()))
	defer cancel()
	failed := func(exec string, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeSetupFailed, "start the template "+t.Name, "look at what it printed: "+e.lastOutput(sandbox, exec), "%w", fmt.Errorf(format, args...))
	}
	if len(t.Start) > 0 {
		if _, err := e.StartExec(ctx, who, sandbox, api.ExecSpec{ID: "start", Args: t.Start}); err != nil {
			return failed("start", "its command could not be started: %w", err)
		}
	}
	if len(t.Ready) == 0 {
		return nil
	}
	for n := 1; ; n++ {
		id := fmt.Sprintf("ready-%d", n)
		_, err := e.StartExec(ctx, who, sandbox, api.ExecSpec{ID: id, Args: t.Ready})
		var x api.Exec
		if err == nil {
			x, err = e.WaitExec(ctx, who, sandbox, id)
		}
		switch {
		case err == nil && x.ExitCode != nil && *x.ExitCode == 0:
			return nil
		case ctx.Err() != nil:
			return failed("start", "its ready check did not succeed: %w", context.Cause(ctx))
		case err != nil:
			return failed(id, "its ready check could not be run: %w", err)
		}
		if len(t.Start) > 0 {
			if s, err := e.Exec(ctx, who, sandbox, "start"); err == nil && s.State == api.ExecEnded && s.ExitCode != nil && *s.ExitCode != 0 {
				return failed("start", "its command ended with status %d", *s.ExitCode)
			}
		}
		wait := make(chan struct{})
		stop := e.clock.AfterFunc(readyEvery, func() { close(wait) })
		select {
		case <-wait:
		case <-ctx.Done():
			stop()
			return failed("start", "its ready check did not succeed: %w", context.Cause(ctx))
		}
	}
}

// lastOutput gives the end of what an exec has printed, as printable text.
func (e *Engine) lastOutput(sandbox, exec string) string {
	var text []byte
	ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
	defer cancel()
	_ = e.Output(ctx, Caller{Admin: true}, sandbox, exec, nil, false, func(o api.OutputEvent) error { // without it the error tells less
		if text = append(text, o.Data...); len(text) > readyLog {
			text = text[len(text)-readyLog:]
		}
		return nil
	})
	return printable(string(text))
}

// printable takes out what could move a terminal's cursor.
func printable(s string) string {
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s), "?")
}

// fromTemplate gives the image of a template that a Dockerfile begins FROM.
func (e *Engine) fromTemplate(ctx context.Context) func(string) (string, bool) {
	return func(ref string) (string, bool) {
		name, err := templateName(ref)
		if err != nil {
			return "", false
		}
		d, _, ok, err := e.template(ctx, name)
		return d.Template.Digest, ok && err == nil && d.Template.Digest != ""
	}
}
