package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// Options are all that a build needs.
type Options struct {
	Spec    api.BuildSpec
	Context io.Reader // a tar, plain or compressed; nil: empty
	Name    string    // that the image gets in the store
	Store   *image.Store
	Hands   Hands
	Machine Machine
	Work    string // an empty folder, the build's to use; the caller removes it
	Caches  string // a folder that RUN --mount=type=cache uses, of all builds
	// Owner is whose build it is. What one owner's steps leave in a cache is not
	// seen by another's, nor is a layer that was made with it.
	Owner string
	// Template gives the image that a template's name means.
	Template func(name string) (digest string, ok bool)
	// Each is told of steps and of what they print. Calls follow one another.
	Each func(api.Progress)
}

// builder is one build.
type builder struct {
	Options
	file    *file
	context *view.View
	dir     string // the context on the host
	global  []string
	stages  []*stage // by index, nil until it is built
	step    int
	steps   int
	used    map[string]bool // build arguments that a Dockerfile has asked for
	added   int
}

// Build makes an image. Errors have code usage for what the file or the spec is
// at fault for, build_failed for a step that did not succeed, both with the line,
// and those of what it uses.
func Build(ctx context.Context, o Options) (image.Pulled, error) {
	release, err := o.Store.Hold()
	if err != nil {
		return image.Pulled{}, err
	}
	defer release()
	b := &builder{Options: o, used: map[string]bool{}}
	if b.Each == nil {
		b.Each = func(api.Progress) {}
	}
	if err := b.unpackContext(ctx); err != nil {
		return image.Pulled{}, err
	}
	if err := b.readFile(); err != nil {
		return image.Pulled{}, err
	}
	target, err := b.target()
	if err != nil {
		return image.Pulled{}, err
	}
	if b.global, err = b.globals(); err != nil {
		return image.Pulled{}, err
	}
	b.stages = make([]*stage, len(b.file.stages))
	for i := range target + 1 {
		b.steps += len(b.file.stages[i].Commands) + 1
	}
	s, err := b.stage(ctx, target)
	if err != nil {
		return image.Pulled{}, err
	}
	for name := range b.Spec.Args {
		if !b.used[name] && !predefined(name) {
			b.say("the argument %s was given, and nothing asks for it\n", name)
		}
	}
	if len(s.layers) == 0 {
		return image.Pulled{}, bailey.Errorf(bailey.CodeUsage, "make the image", "copy something into it", "it has no files")
	}
	return o.Store.Write(ctx, o.Name, s.config, s.layers)
}

func (b *builder) say(format string, args ...any) {
	b.Each(api.Progress{Log: fmt.Sprintf(format, args...)})
}

func (b *builder) unpackContext(ctx context.Context) error {
	dir := filepath.Join(b.Work, "context")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return storage(err)
	}
	b.dir = filepath.Join(dir, "fs")
	if b.Context == nil {
		if err := os.Mkdir(b.dir, 0o700); err != nil {
			return storage(err)
		}
	} else if err := b.Hands.Unpack(ctx, b.Context, dir); err != nil {
		return err
	}
	b.context = view.New([]string{b.dir}, b.Store.IDs())
	return nil
}

// readFile reads the Dockerfile, and takes away what .dockerignore says.
func (b *builder) readFile() error {
	name := b.Spec.Dockerfile
	if name == "" {
		name = "Dockerfile"
	}
	text, err := b.context.ReadFile("/"+name, maxDockerfile)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("the context has none")
		}
		return bailey.Errorf(bailey.CodeUsage, "read "+strconv.Quote(name), "name the Dockerfile by its path in the context", "%w", err)
	}
	for _, n := range []string{name + ".dockerignore", ".dockerignore"} {
		rules, err := b.context.ReadFile("/"+n, maxDockerfile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return bailey.Errorf(bailey.CodeUsage, "read "+n, "", "%w", err)
		}
		g, err := parseIgnore(rules)
		if err != nil {
			return err
		}
		if err := g.apply(b.dir); err != nil {
			return storage(err)
		}
		break
	}
	b.file, err = parse(name, text)
	return err
}

// target finds the stage that is wanted.
func (b *builder) target() (int, error) {
	if b.Spec.Target == "" {
		return len(b.file.stages) - 1, nil
	}
	if i, ok := instructions.HasStage(b.file.stages, b.Spec.Target); ok {
		return i, nil
	}
	if i, err := strconv.Atoi(b.Spec.Target); err == nil && i >= 0 && i < len(b.file.stages) {
		return i, nil
	}
	return 0, bailey.Errorf(bailey.CodeUsage, "build the stage "+strconv.Quote(b.Spec.Target), "", "%s has no such stage", b.file.name)
}

// globals are the variables that FROM lines may use: the platform, and the
// arguments before the first stage.
func (b *builder) globals() ([]string, error) {
	env := platformArgs()
	for _, c := range b.file.args {
		if err := c.Expand(b.file.expander(env)); err != nil {
			return nil, b.at(c.Location(), bailey.CodeUsage, "%w", err)
		}
		for _, a := range c.Args {
			value, given := b.Spec.Args[a.Key]
			b.used[a.Key] = true
			if !given && a.Value == nil {
				continue
			}
			if !given {
				value = *a.Value
			}
			env = setEnv(env, a.Key, value)
		}
	}
	return env, nil
}

func platformArgs() []string {
	p := "linux/" + runtime.GOARCH
	return []string{"BUILDPLATFORM=" + p, "BUILDOS=linux", "BUILDARCH=" + runtime.GOARCH, "BUILDVARIANT=",
		"TARGETPLATFORM=" + p, "TARGETOS=linux", "TARGETARCH=" + runtime.GOARCH, "TARGETVARIANT="}
}

// predefined are arguments that every builder knows, whether they are declared or
// not.
func predefined(name string) bool {
	return slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY", "SOURCE_DATE_EPOCH"}, strings.ToUpper(name))
}

// setEnv puts NAME=value into a list that is not changed itself.
func setEnv(env []string, name, value string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	return append(out, name+"="+value)
}

func getEnv(env []string, name string) (string, bool) {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

func storage(err error) error {
	return bailey.Errorf(bailey.CodeStorage, "build the image", "see that the data folder has room and is writable", "%w", err)
}

// emptyConfig is what FROM scratch begins with.
func emptyConfig() *v1.ConfigFile {
	return &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}}
}
