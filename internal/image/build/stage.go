package build

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// stage is a stage as far as it has been built.
type stage struct {
	b      *builder
	n      int // its number in the file
	config *v1.ConfigFile
	layers []image.Layer
	key    string   // of what its files are
	args   []string // NAME=VALUE that ARG has declared
	hasCmd bool     // CMD was in this stage
}

// at makes an error that names its line. One of Bailey's own keeps its code.
func (b *builder) at(where []parser.Range, code bailey.Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	what := "build " + b.file.name
	if n := line(where); n > 0 {
		what += fmt.Sprintf(":%d", n)
	}
	var own *bailey.Error
	if errors.As(err, &own) {
		at := bailey.Errorf(own.Code, what, own.Fix, "cannot %s: %s", own.What, own.Why)
		at.Err = err
		return at
	}
	return bailey.Errorf(code, what, "", "%w", err)
}

// stage builds a stage and what it needs, once.
func (b *builder) stage(ctx context.Context, i int) (*stage, error) {
	if b.stages[i] != nil {
		return b.stages[i], nil
	}
	def := b.file.stages[i]
	b.begin(def.SourceCode)
	s, err := b.from(ctx, i, def)
	if err != nil {
		return nil, b.at(def.Location, bailey.CodeUsage, "%w", err)
	}
	s.n = i
	triggers := s.config.Config.OnBuild
	s.config.Config.OnBuild = nil
	for _, text := range triggers {
		c, err := parseTrigger(text)
		if err == nil {
			b.say("ONBUILD of the base: %s\n", text)
			err = s.do(ctx, c)
		}
		if err != nil {
			return nil, b.at(def.Location, bailey.CodeUsage, "the base's ONBUILD %s: %w", text, err)
		}
	}
	for _, c := range def.Commands {
		b.begin(fmt.Sprint(c))
		if err := s.do(ctx, c); err != nil {
			return nil, b.at(c.Location(), bailey.CodeUsage, "%w", err)
		}
	}
	b.stages[i] = s
	return s, nil
}

// begin tells that the next step is done.
func (b *builder) begin(code string) {
	b.step++
	first, _, more := strings.Cut(code, "\n")
	if more {
		first += " …"
	}
	b.Each(api.Progress{Step: first, Done: int64(b.step), Total: int64(max(b.step, b.steps))})
}

// from finds what a stage begins with.
func (b *builder) from(ctx context.Context, i int, def instructions.Stage) (*stage, error) {
	expand := b.file.expander(b.global)
	base, err := expand(def.BaseName)
	if err != nil {
		return nil, err
	}
	if base == "" {
		return nil, fmt.Errorf("%q names nothing: an argument in it has no value", def.BaseName)
	}
	platform, err := expand(def.Platform)
	if err != nil {
		return nil, err
	}
	if err := b.platform(platform); err != nil {
		return nil, err
	}
	if n, ok := instructions.HasStage(b.file.stages[:i], base); ok {
		under, err := b.stage(ctx, n)
		if err != nil {
			return nil, err
		}
		return &stage{b: b, config: under.config.DeepCopy(), layers: slices.Clone(under.layers), key: under.key}, nil
	}
	return b.base(ctx, base)
}

// platform refuses what cannot run here.
func (b *builder) platform(want string) error {
	have, _ := getEnv(platformArgs(), "TARGETPLATFORM")
	if want == "" || want == have || strings.HasPrefix(want, have+"/") {
		return nil
	}
	return bailey.Errorf(bailey.CodeNotAvailable, "build for another platform", "leave --platform out, or build on such a machine",
		"%q is not this machine's %s, and nothing is emulated", want, have)
}

// base makes a stage of scratch, a template, or an image of the store or a
// registry.
func (b *builder) base(ctx context.Context, ref string) (*stage, error) {
	if ref == "scratch" {
		return &stage{b: b, config: emptyConfig(), key: key("", "scratch")}, nil
	}
	if ref == image.HostSource {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "build on the host's own tools", "begin FROM an image",
			"the template \"host\" shows files of this machine, which cannot be part of an image")
	}
	digest, ok := "", false
	if b.Template != nil {
		digest, ok = b.Template(ref)
	}
	if !ok {
		p, err := b.Hands.Pull(ctx, ref, b.Each)
		if err != nil {
			return nil, err
		}
		digest = p.Name.Image
	}
	config, layers, err := b.Store.Image(digest)
	if err != nil {
		return nil, err
	}
	return &stage{b: b, config: config, layers: layers, key: key("", "image", digest)}, nil
}

// env is what variables in instructions stand for: ENV wins over ARG.
func (s *stage) env() []string {
	env := slices.Clone(s.args)
	for _, e := range s.config.Config.Env {
		if name, value, ok := strings.Cut(e, "="); ok {
			env = setEnv(env, name, value)
		}
	}
	return env
}

// dirs are the folders of the stage's layers, lowest first; those without entries
// show nothing.
func (s *stage) dirs() []string {
	var dirs []string
	for i, l := range s.layers {
		again := slices.ContainsFunc(s.layers[i+1:], func(o image.Layer) bool { return o.DiffID == l.DiffID })
		if l.Entries > 0 && !again { // overlayfs refuses a folder that is there twice
			dirs = append(dirs, s.b.Store.Dir(l.DiffID))
		}
	}
	return dirs
}

func (s *stage) view() *view.View { return view.New(s.dirs(), s.b.Store.IDs()) }

// record notes a step in the image's history.
func (s *stage) record(c any, empty bool) {
	s.config.History = append(s.config.History, v1.History{Created: v1.Time{Time: time.Unix(0, 0).UTC()}, CreatedBy: fmt.Sprint(c), EmptyLayer: empty})
}

// push adds a layer.
func (s *stage) push(l image.Layer, key string, c any) {
	s.key = key
	if l.Entries == 0 {
		s.record(c, true)
		return
	}
	s.layers = append(slices.Clone(s.layers), l)
	s.record(c, false)
}

// do does one instruction.
func (s *stage) do(ctx context.Context, c instructions.Command) error {
	if x, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		if err := x.Expand(s.b.file.expander(s.env())); err != nil {
			return err
		}
	}
	if x, ok := c.(instructions.SupportsSingleWordExpansionRaw); ok {
		expand := s.b.file.expander(s.env())
		if err := x.ExpandRaw(func(w string) (string, error) { return rawExpand(expand, w) }); err != nil {
			return err
		}
	}
	switch c := c.(type) {
	case *instructions.RunCommand:
		return s.run(ctx, c)
	case *instructions.CopyCommand:
		return s.copy(ctx, c)
	case *instructions.AddCommand:
		return s.add(ctx, c)
	case *instructions.WorkdirCommand:
		return s.workdir(ctx, c)
	}
	if err := s.configure(c); err != nil {
		return err
	}
	s.record(c, true)
	return nil
}

// rawExpand puts variables into the text of a heredoc, in which quotes are only
// quotes.
func rawExpand(expand instructions.SingleWordExpander, text string) (string, error) {
	var out strings.Builder
	for i, l := range strings.SplitAfter(text, "\n") {
		e, err := expand(strings.NewReplacer(`"`, `\"`, `'`, `\'`).Replace(l))
		if err != nil {
			return "", fmt.Errorf("line %d of the text: %w", i+1, err)
		}
		out.WriteString(e)
	}
	return out.String(), nil
}

// workdir sets the working folder, and makes it.
func (s *stage) workdir(ctx context.Context, c *instructions.WorkdirCommand) error {
	dir := s.inside(c.Path)
	s.config.Config.WorkingDir = dir
	a, err := resolveUser(s.view(), s.config.Config.User)
	if err != nil {
		return err
	}
	t := newTree(s.view())
	if _, err := t.folder(dir, a.User); err != nil {
		return err
	}
	if !t.changed() {
		s.record(c, true)
		return nil
	}
	return s.plant(ctx, t, c)
}

// inside makes a path of the image of what an instruction says.
func (s *stage) inside(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join("/", s.config.Config.WorkingDir, p)
}
