package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/engine/way"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
	"github.com/bailey-sandbox/bailey/internal/image/build"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/layers"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// machine runs the steps of one build, each in a sandbox of its own that is gone
// with it. Such a sandbox has no record and nobody adopts it: when the daemon dies
// it ends by its lease, and its build has failed.
type machine struct {
	e     *Engine
	build *templateBuild
	dir   string // the build's
}

// job is a command in such a sandbox.
type job struct {
	build.Step
	errors io.Writer // nil: Output
	dir    string
}

// Run is build.Machine's.
func (m *machine) Run(ctx context.Context, s build.Step) (bailey.End, error) {
	id := newID()
	j := job{Step: s, dir: filepath.Join(m.dir, id)}
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		return bailey.End{}, storage("prepare a step", err)
	}
	end, spec, err := m.run(ctx, id, j)
	if err == nil && end.Reason == bailey.EndExit && end.ExitCode == 0 && s.Layer != nil {
		err = m.layer(ctx, id, j, spec)
	}
	return end, errors.Join(err, folder.RemoveTree(j.dir))
}

// upper is the folder in which a job's writes end.
func (j job) upper() string { return filepath.Join(j.dir, "root", "upper") }

// run runs a job and gives what its sandbox was, but for the job's own mounts.
func (m *machine) run(ctx context.Context, id string, j job) (end bailey.End, plain driver.Spec, err error) {
	e := m.e
	out, err := m.way(ctx, id, j)
	if err != nil {
		return end, plain, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	req := run.Request{Level: bailey.IsolationContainer, UID: j.User.UID, GID: j.User.GID, SetEnv: j.Env, Workdir: j.Dir, IUnderstand: true,
		Rootfs: &rootfs.Root{Version: rootfs.Version, Kind: rootfs.KindOCI, Layers: j.Layers, IDs: e.images.store.IDs()}}
	spec, _, err := e.host.Stay(req, run.Staying{
		ID: id, Hostname: "build", MachineID: strings.Repeat("0", 32), Here: j.dir, There: j.dir, Way: out.opened, Policy: out.policy,
		Overlay: func(_ string, ground []string, hostIDs bool) (*driver.Overlay, error) {
			root := filepath.Join(j.dir, "root")
			for _, d := range []string{root, filepath.Join(root, "work"), j.upper()} {
				if err := os.Mkdir(d, 0o700); err != nil {
					return nil, storage("prepare a step", err)
				}
			}
			return &driver.Overlay{Lower: ground, Layer: root, HostIDs: hostIDs}, workspace.LookLike(j.upper(), ground[len(ground)-1])
		},
	})
	if err != nil {
		return end, plain, err
	}
	plain = spec
	plain.Root.Places = slices.Clone(spec.Root.Places)
	spec.Env = ownEnv(spec.Env, j.Env)
	mounts, env := out.mounts(j.Mounts)
	spec.Root.Places, spec.Env = append(spec.Root.Places, mounts...), append(spec.Env, env...)
	end, err = m.start(ctx, spec, j, out)
	return end, plain, err
}

// ownEnv leaves out what a terminal of the daemon would give: a build does not
// depend on it.
func ownEnv(env, own []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"TERM", "COLORTERM", "LANG", "TZ", "NO_COLOR"}, name) && !slices.Contains(own, v)
	})
}

// start runs the command and waits for its end.
func (m *machine) start(ctx context.Context, spec driver.Spec, j job, to *stepWay) (bailey.End, error) {
	errs := j.errors
	if errs == nil {
		errs = j.Output
	}
	out, outEnd, err := outputPipe(j.Output)
	if err != nil {
		return bailey.End{}, err
	}
	err2, errEnd, err := outputPipe(errs)
	if err != nil {
		out.Close()
		outEnd()
		return bailey.End{}, err
	}
	spec.Entry = driver.Entry{Command: j.Args, Stdio: [3]*os.File{nil, out, err2}}
	in, err := m.e.driver.Create(ctx, spec)
	out.Close()
	err2.Close()
	if err == nil {
		if err = to.attach(ctx, in); err != nil {
			in.Kill(bailey.EndUser)
		}
		select {
		case <-in.Done():
		case <-ctx.Done():
			in.Kill(bailey.EndUser)
			<-in.Done()
		}
		// Whatever it left running ends with it, so that the pipes do.
		err = errors.Join(err, in.Destroy(context.WithoutCancel(ctx)))
	}
	werr := errors.Join(outEnd(), errEnd())
	switch {
	case ctx.Err() != nil:
		return bailey.End{}, ctx.Err()
	case err != nil:
		return bailey.End{}, err
	}
	return in.End(), werr
}

// outputPipe gives the end of a pipe that a command writes to; end waits until all
// of it has been passed on.
func outputPipe(w io.Writer) (in *os.File, end func() error, err error) {
	r, in, err := os.Pipe()
	if err != nil {
		return nil, nil, bailey.Errorf(bailey.CodeSetupFailed, "run a step", "", "%w", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer r.Close()
		if _, cerr := io.Copy(w, r); cerr != nil {
			err = cerr
			_, _ = io.Copy(io.Discard, r) // who writes must not wait for ever
		}
	})
	return in, func() error { wg.Wait(); return err }, nil
}

// layer gives what a command wrote as a layer of an image.
func (m *machine) layer(ctx context.Context, id string, j job, spec driver.Spec) (err error) {
	var made []string
	for _, p := range spec.Root.Places {
		if p.Kind == driver.File && !always(p.Target) && changed(filepath.Join(j.upper(), p.Target), p.Content) {
			continue // the command has made it its own
		}
		made = append(made, p.Target)
	}
	name := "build-" + id
	// It is in no row, so that nothing else keeps it from being taken for a layer that
	// nobody stands on.
	m.e.holdLayers(name)
	defer m.e.releaseLayers(name)
	uids, gids := linux.LayerIDs(bailey.IsolationContainer, spec.User, false)
	if _, err := m.e.layers.Seal(ctx, name, "", j.upper(), layers.IDs{UID: ranges(uids), GID: ranges(gids)}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.e.layers.Remove(context.WithoutCancel(ctx), name)) }()
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		werr := m.e.layers.WriteTar(ctx, name, w)
		w.CloseWithError(werr)
		written <- werr
	}()
	err = j.Layer(ctx, r, made)
	r.CloseWithError(io.ErrClosedPipe)
	if werr := <-written; werr != nil && !errors.Is(werr, io.ErrClosedPipe) {
		return werr
	}
	return err
}

// always says that a file is the machine's whatever the command does to it.
func always(target string) bool {
	return slices.Contains([]string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/machine-id"}, target)
}

// changed says whether a file has another content than it was made with.
func changed(path string, content []byte) bool {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() != int64(len(content)) {
		return err == nil
	}
	have, err := os.ReadFile(path)
	return err == nil && !bytes.Equal(have, content)
}

// fetcher is where Fetch's own program is seen.
const fetcher = "/bailey-fetch"

// Fetch is build.Machine's: a program of Bailey's own gets the URL in a sandbox
// that holds nothing else, through the gate.
func (m *machine) Fetch(ctx context.Context, url string, w io.Writer) error {
	id := newID()
	j := job{dir: filepath.Join(m.dir, id)}
	empty := filepath.Join(j.dir, "empty")
	for _, d := range []string{j.dir, empty} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return storage("prepare a step", err)
		}
	}
	said := &tailOf{most: 4 << 10}
	j.errors = said
	j.Step = build.Step{Layers: []string{empty}, Args: []string{fetcher, "image", "fetch", "--json", "--store", "/", "--", url}, Dir: "/", Network: true, Output: w,
		Mounts: []build.Mount{{Kind: build.Folder, Target: fetcher, Source: m.e.opt.Daemon, ReadOnly: true}}}
	end, _, err := m.run(ctx, id, j)
	err = errors.Join(err, folder.RemoveTree(j.dir))
	if err == nil && (end.Reason != bailey.EndExit || end.ExitCode != 0) {
		err = bailey.Errorf(bailey.CodeBuildFailed, "add "+printable(url), "see that the build's policy allows it", "%s", said.why())
	}
	return err
}

// tailOf keeps the end of what is written to it.
type tailOf struct {
	most int
	b    []byte
}

func (t *tailOf) Write(p []byte) (int, error) {
	if t.b = append(t.b, p...); len(t.b) > t.most {
		t.b = t.b[len(t.b)-t.most:]
	}
	return len(p), nil
}

// why is the reason in what a program of ours has printed: an error, as JSON.
func (t *tailOf) why() string {
	text := bytes.TrimSpace(t.b)
	var own bailey.Error
	if json.Unmarshal(text[bytes.LastIndexByte(text, '\n')+1:], &own) == nil && own.Why != "" {
		return printable(own.Why)
	}
	return printable(string(text))
}

// stepWay is the way out of one step.
type stepWay struct {
	opened *control.Opened // nil: none
	policy control.Policy
	attach func(context.Context, driver.Instance) error
	close  func() error
}

// way opens a way out where the build's policy lets anything pass and the step
// wants it. A gate that dies meanwhile takes the step's network with it.
func (m *machine) way(ctx context.Context, id string, j job) (*stepWay, error) {
	s := m.build.spec
	policy, err := policyOf(api.SandboxSpec{Policy: s.Policy, Allow: s.Allow, Profiles: s.Profiles, Secrets: s.Secrets})
	if err != nil {
		return nil, err
	}
	sw := &stepWay{policy: policy, attach: func(context.Context, driver.Instance) error { return nil }, close: func() error { return nil }}
	if policy.Empty() || !j.Network {
		return sw, nil
	}
	w, err := m.e.gate()
	if err != nil {
		return nil, err
	}
	opened, err := w.Open(ctx, way.Opening{Sandbox: id, Level: bailey.IsolationContainer, Policy: policy, Root: rootfiles.Root{Layers: j.Layers}})
	if err != nil {
		return nil, err
	}
	sw.opened = &control.Opened{Policy: opened.Policy, Env: opened.Env, Placeholders: opened.Placeholders}
	for _, f := range opened.Files {
		sw.opened.Files = append(sw.opened.Files, control.File{Path: f.Path, Mode: f.Mode, Content: f.Content, Size: int64(len(f.Content))})
	}
	var out *driver.Outlet
	sw.attach = func(ctx context.Context, in driver.Instance) error {
		if out = in.Outlet(); out == nil {
			return bailey.Errorf(bailey.CodeInternal, "connect the step with the gate", "", "it has no outlet")
		}
		return w.Attach(ctx, id, out.TCP, out.UDP)
	}
	sw.close = func() error {
		_, err := w.Close(context.WithoutCancel(ctx), id)
		if out != nil {
			err = errors.Join(err, out.TCP.Close(), out.UDP.Close())
		}
		return err
	}
	return sw, nil
}

// mounts are the driver's words for a step's mounts.
func (w *stepWay) mounts(list []build.Mount) (places []driver.Place, env []string) {
	for _, x := range list {
		p := driver.Place{Kind: driver.Bind, Target: x.Target, Source: x.Source, IsDir: x.IsDir, ReadOnly: x.ReadOnly}
		if x.Kind != build.Folder {
			p = driver.Place{Kind: driver.File, Target: x.Target, Content: x.Content, Mode: x.Mode.Perm(), Owned: x.Owner.UID != 0}
		}
		if x.Kind == build.Secret {
			value := w.placeholder(x.Source)
			if p.Content = []byte(value); x.Env != "" {
				env = append(env, x.Env+"="+value)
			}
		}
		if x.Target != "" {
			places = append(places, p)
		}
	}
	return places, env
}

// placeholder is what a sandbox holds in place of a secret's value.
func (w *stepWay) placeholder(name string) string {
	if w.opened == nil {
		return ""
	}
	for _, e := range w.opened.Env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
