package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/build"
	"github.com/bailey-sandbox/bailey/internal/image/tool"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// The layout of the folder of builds:
//
//	builds/ID/      what a build needs while it goes on
//	builds/ID.log   what it has printed: kept until its template is built again or deleted
//	builds/caches/  what RUN --mount=type=cache keeps, of all builds
const (
	buildsDir = "builds"
	cachesDir = "caches"
	logSuffix = ".log"
)

// maxBuildLog bounds what is kept of what a build prints, in bytes.
const maxBuildLog = 16 << 20

// running is a build that goes on.
type running struct {
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when its row says how it ended
}

// BuildTemplate builds a template of a context, a tar; each is told what goes on,
// at last the template. When ctx ends, the build fails. A template of that name that
// was built before stays in use until the new one is ready, and if that fails.
func (e *Engine) BuildTemplate(ctx context.Context, who Caller, spec api.BuildSpec, files io.Reader, each func(api.Progress)) (api.Template, error) {
	name, err := templateName(spec.Name)
	if err != nil {
		return api.Template{}, err
	}
	spec.Name = name
	if err := checkBuild(spec); err != nil {
		return api.Template{}, err
	}
	policy, err := policyOf(api.SandboxSpec{Policy: spec.Policy, Allow: spec.Allow, Profiles: spec.Profiles, Secrets: spec.Secrets})
	if err == nil {
		err = mayAsk(who, policy)
	}
	if err != nil {
		return api.Template{}, err
	}
	if err := e.mayReplace(ctx, who, name); err != nil {
		return api.Template{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &running{cancel: cancel, over: make(chan struct{})}
	e.images.mu.Lock()
	if e.images.builds[name] != nil {
		e.images.mu.Unlock()
		return api.Template{}, bailey.Errorf(bailey.CodeBusy, "build the template "+name, "wait for it, or delete the template, which ends it", "it is being built")
	}
	if e.isClosed() {
		e.images.mu.Unlock()
		return api.Template{}, bailey.Errorf(bailey.CodeNotAvailable, "build the template "+name, "", "the engine is being closed")
	}
	e.images.builds[name] = r
	e.images.mu.Unlock()
	defer func() {
		e.images.mu.Lock()
		delete(e.images.builds, name)
		e.images.mu.Unlock()
		close(r.over)
	}()
	b := &templateBuild{e: e, who: who, spec: spec, id: newID(), each: each}
	return b.do(ctx, files)
}

func (e *Engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// checkBuild refuses what makes no sense before anything is done.
func checkBuild(s api.BuildSpec) error {
	bad := func(fix, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, "build the template "+s.Name, fix, format, args...)
	}
	for _, x := range s.Secrets {
		if name, host, ok := strings.Cut(x, "@"); !ok || name == "" || host == "" {
			return bad("write NAME@HOST", "%q does not say which secret goes where", x)
		}
	}
	for k := range s.Args {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return bad("", "%q cannot be the name of an argument", k)
		}
	}
	if s.Warm < 0 || s.Warm > maxWarm {
		return bad("ask for 0 to 1000", "%d sandboxes cannot be kept ready", s.Warm)
	}
	for _, list := range [][]string{s.Start, s.Ready} {
		if len(list) > 0 && list[0] == "" || slices.ContainsFunc(list, func(a string) bool { return strings.IndexByte(a, 0) >= 0 }) {
			return bad("", "a command is empty, or has a NUL byte in it")
		}
	}
	for _, t := range s.Tags {
		if _, err := templateName(t); err != nil {
			return err
		}
	}
	return nil
}

// maxWarm is how many sandboxes of a template may be kept ready.
const maxWarm = 1000

// templateBuild is one build.
type templateBuild struct {
	e    *Engine
	who  Caller
	spec api.BuildSpec
	id   string
	each func(api.Progress)

	mu     sync.Mutex
	log    *os.File
	logged int64
}

func (b *templateBuild) do(ctx context.Context, files io.Reader) (api.Template, error) {
	const what = "begin the build"
	e, name := b.e, b.spec.Name
	dir := filepath.Join(e.home, buildsDir, b.id)
	if err := os.MkdirAll(filepath.Join(e.home, buildsDir, cachesDir), 0o700); err != nil {
		return api.Template{}, storage(what, err)
	}
	d, _, _, err := e.template(ctx, name)
	if err != nil {
		return api.Template{}, err
	}
	d.Template.Name, d.Template.State, d.Template.Error, d.Log = name, templateBuilding, nil, b.id+logSuffix
	if d.Template.Created.IsZero() {
		d.Template.Created = e.clock.Now().UTC()
	}
	if err := e.putTemplate(ctx, b.who.Name, d); err != nil {
		return api.Template{}, err
	}
	e.trace("row building")
	var p image.Pulled
	if err = os.Mkdir(dir, 0o700); err == nil {
		b.log, err = os.OpenFile(dir+logSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		err = storage(what, err)
	} else {
		p, err = b.build(ctx, dir, files)
		err = errors.Join(err, b.log.Close(), folder.RemoveTree(dir))
	}
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		return api.Template{}, b.failed(ctx, d, err)
	}
	c := p.Root.Config
	d.Template = api.Template{Name: name, State: templateReady, Digest: p.Name.Image, Created: e.clock.Now().UTC(), Size: p.Name.Size,
		Start: b.spec.Start, Ready: b.spec.Ready, Env: c.Env, Workdir: c.Workdir, User: c.User, Warm: b.spec.Warm}
	if err := e.putTemplate(ctx, b.who.Name, d); err != nil {
		return api.Template{}, err
	}
	e.dropWarm(func(w *warm) bool { return w.kind.template == name }, false) // others are made
	for _, t := range b.spec.Tags {
		t, err := templateName(t)
		if err == nil {
			err = e.tagTemplate(ctx, b.who, d, t)
		}
		if err != nil {
			return d.Template, err
		}
	}
	if err := errors.Join(e.dropLogs(ctx), e.clearImages(ctx)); err != nil {
		e.log.Error("clear up after a build", "template", name, "error", err)
	}
	b.tell(api.Progress{Step: "built", Built: &d.Template})
	return d.Template, nil
}

// failed records why a build has failed. What was built before stays.
func (b *templateBuild) failed(ctx context.Context, d templateDoc, err error) error {
	var own *bailey.Error
	if !errors.As(err, &own) {
		own = bailey.Errorf(bailey.CodeBuildFailed, "build the template "+d.Template.Name, "build it again", "%w", err)
		if errors.Is(err, context.Canceled) {
			own = bailey.Errorf(bailey.CodeBuildFailed, "build the template "+d.Template.Name, "build it again", "it was broken off")
		}
	}
	d.Template.State, d.Template.Error = templateFailed, own
	b.tell(api.Progress{Step: "failed", Error: own})
	return errors.Join(own, b.e.putTemplate(ctx, b.who.Name, d))
}

func (b *templateBuild) build(ctx context.Context, dir string, files io.Reader) (image.Pulled, error) {
	e := b.e
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return image.Pulled{}, storage("begin the build", err)
	}
	return build.Build(ctx, build.Options{
		Spec: b.spec, Context: files, Name: templateNames + b.spec.Name, Store: e.images.store, Hands: hands{e, e.images.tool},
		Machine: &machine{e: e, build: b, dir: dir}, Work: work, Caches: filepath.Join(e.home, buildsDir, cachesDir), Owner: b.who.Name,
		Template: e.fromTemplate(ctx), Each: b.tell,
	})
}

// hands are the tool, and what of images is here already.
type hands struct {
	e *Engine
	tool.Tool
}

// Pull is build.Hands's: an image that is there is not asked for again.
func (h hands) Pull(ctx context.Context, ref string, each func(api.Progress)) (image.Pulled, error) {
	return h.e.image(ctx, ref, each)
}

// tell passes on what goes on, and writes it into the log.
func (b *templateBuild) tell(p api.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := p.Log
	if text == "" && p.Step != "" {
		text = p.Step + "\n"
	}
	if p.Error != nil {
		text = p.Error.Error() + "\n"
	}
	if n := int64(len(text)); b.log != nil && n > 0 && b.logged+n <= maxBuildLog {
		b.logged += n
		if _, err := b.log.WriteString(text); err != nil && !errors.Is(err, os.ErrClosed) {
			b.e.log.Error("write a build's log", "template", b.spec.Name, "error", err)
		}
	}
	if b.each != nil {
		b.each(p)
	}
}

// endBuild ends a template's build, if one goes on, and waits for its end.
func (e *Engine) endBuild(ctx context.Context, name string) error {
	e.images.mu.Lock()
	r := e.images.builds[name]
	e.images.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel(context.Canceled)
	select {
	case <-r.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endBuilds ends all builds: the engine is being closed.
func (e *Engine) endBuilds() {
	e.images.mu.Lock()
	var names []string
	for n := range e.images.builds {
		names = append(names, n)
	}
	e.images.mu.Unlock()
	for _, n := range names {
		_ = e.endBuild(context.Background(), n) // it has no other error than the context's
	}
}

// settleBuilds ends what a crash has interrupted: builds have failed, and nothing
// of them is left but their logs.
func (e *Engine) settleBuilds(ctx context.Context) error {
	rows, err := e.db.Templates(ctx, "")
	if err != nil {
		return err
	}
	ready := map[string]string{}
	for _, r := range rows {
		d, owner, ok, err := e.template(ctx, r.Name)
		if err != nil || !ok {
			continue // the list says what is wrong with it
		}
		ready[templateNames+r.Name] = d.Template.Digest
		if d.Template.State != templateBuilding {
			continue
		}
		d.Template.State = templateFailed
		d.Template.Error = bailey.Errorf(bailey.CodeBuildFailed, "build the template "+r.Name, "build it again", "the daemon ended while it was built")
		if err := e.putTemplate(ctx, owner, d); err != nil {
			return err
		}
	}
	names, err := e.images.store.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if !isTemplateName(n.Name) || ready[n.Name] == n.Image {
			continue
		}
		// The name of an image whose row was not written any more: the one before.
		if d := ready[n.Name]; d == "" {
			err = e.images.store.DropName(n.Name)
		} else {
			n.Image, n.Digest = d, d
			err = e.images.store.SetName(n)
		}
		if err != nil {
			return err
		}
	}
	list, err := os.ReadDir(filepath.Join(e.home, buildsDir))
	if err != nil && !os.IsNotExist(err) {
		return storage("clear the folder of builds", err)
	}
	for _, f := range list {
		if f.IsDir() && f.Name() != cachesDir {
			if err := folder.RemoveTree(filepath.Join(e.home, buildsDir, f.Name())); err != nil {
				return err
			}
		}
	}
	return e.dropLogs(ctx)
}

// dropLogs removes logs that no template names.
func (e *Engine) dropLogs(ctx context.Context) error {
	rows, err := e.db.Templates(ctx, "")
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, r := range rows {
		if d, _, ok, err := e.template(ctx, r.Name); err == nil && ok {
			named[d.Log] = true
		}
	}
	logs, err := filepath.Glob(filepath.Join(e.home, buildsDir, "*"+logSuffix))
	if err != nil {
		return err
	}
	for _, l := range logs {
		if !named[filepath.Base(l)] {
			if err := os.Remove(l); err != nil && !os.IsNotExist(err) {
				return storage("remove a build's log", err)
			}
		}
	}
	return nil
}

// BuildLog writes what the last build of a template has printed.
func (e *Engine) BuildLog(ctx context.Context, who Caller, ref string, w io.Writer) error {
	d, owner, err := e.knownTemplate(ctx, ref)
	if err != nil {
		return err
	}
	if !who.may(owner) {
		return bailey.Errorf(bailey.CodeForbidden, "read the log of "+d.Template.Name, "", "it is %s's", owner)
	}
	f, err := os.Open(filepath.Join(e.home, buildsDir, filepath.Base(d.Log)))
	if err != nil {
		return storage("read the log of "+d.Template.Name, err)
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
