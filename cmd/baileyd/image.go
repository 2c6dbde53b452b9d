package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/registry"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/tool"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
)

const imageUsage = `Usage: baileyd image prepare [flags] --store DIR [SOURCE]
       baileyd image pull [flags] --store DIR REF
       baileyd image ls|rm|export|gc [flags] --store DIR [NAME]
       baileyd image import|layer|context|fetch [flags] --store DIR [DIR|URL]

prepare makes a root file system and says where it is. SOURCE is a folder, a
tar (plain, gzip, zstd or bzip2; also an archive of images), an OCI image
layout, or "host" for the built-in template over this machine's own /usr, which
is the default. Behind a layout or archive of several images: :NAME or
@sha256:DIGEST.

pull fetches the image REF, [HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST], from its
registry. ls lists what was pulled, rm takes a name away, export writes an image
as an OCI layout in a tar to standard output, gc removes what nothing needs.

import, layer and context are for the daemon: import takes what export wrote
from standard input, the others a tar, as a
layer of the store or as DIR/fs with the owners of its files in DIR/owners.
fetch runs inside a build's sandbox and writes what URL holds to standard output.

`

// imageFlags are those of all commands about images.
type imageFlags struct {
	*pflag.FlagSet
	store, config string
	json, dry     bool
	keep          []string
	limits        unpack.Limits
}

func newImageFlags(command string) *imageFlags {
	f := &imageFlags{FlagSet: pflag.NewFlagSet("baileyd image "+command, pflag.ContinueOnError), limits: unpack.DefaultLimits}
	f.SetOutput(io.Discard)
	f.StringVar(&f.store, "store", "", "folder that holds prepared root file systems")
	f.BoolVar(&f.json, "json", false, "print JSON")
	f.Int64Var(&f.limits.Entries, "max-entries", f.limits.Entries, "entries in one layer")
	f.Int64Var(&f.limits.Bytes, "max-bytes", f.limits.Bytes, "bytes of one uncompressed layer")
	f.Int64Var(&f.limits.Names, "max-names", f.limits.Names, "bytes of all names in one layer")
	f.IntVar(&f.limits.Path, "max-path", f.limits.Path, "bytes of one name")
	f.IntVar(&f.limits.Depth, "max-depth", f.limits.Depth, "components of one name")
	f.Int64Var(&f.limits.Ratio, "max-ratio", f.limits.Ratio, "times its compressed size a layer may grow to")
	switch command {
	case "pull":
		f.StringVar(&f.config, "config", "", "configuration of registries, a file; default is "+registry.ConfigFile+" beside the store")
	case "gc":
		f.BoolVar(&f.dry, "dry-run", false, "only say what would be removed")
		f.StringSliceVar(&f.keep, "keep", nil, "digests of images that are needed")
	}
	return f
}

// An imageDoer does a command once its flags are known. args are the others.
type imageDoer struct {
	do       func(ctx context.Context, f *imageFlags, args []string, stdout, stderr io.Writer) error
	min, max int // how many arguments
	what     string
}

var imageCommands = map[string]imageDoer{
	"prepare": {imagePrepare, 0, 1, "prepare a root file system"},
	"pull":    {imagePull, 1, 1, "pull an image"},
	"ls":      {imageList, 0, 0, "list images"},
	"rm":      {imageRemove, 1, 1, "remove an image"},
	"export":  {imageExport, 1, 1, "export an image"},
	"gc":      {imageCollect, 0, 0, "clear the image store"},
	"layer":   {imageLayer, 0, 0, "add a layer"},
	"context": {imageContext, 1, 1, "unpack a build's context"},
	"import":  {imageImport, 0, 0, "import an image"},
	"fetch":   {imageFetch, 1, 1, "fetch a file"},
}

func imageCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c imageDoer
	if len(args) > 0 {
		c = imageCommands[args[0]]
	}
	if c.do == nil {
		fmt.Fprint(stderr, imageUsage)
		return bailey.ExitBailey
	}
	f := newImageFlags(args[0])
	err := f.Parse(args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, imageUsage+f.FlagUsages())
		return 0
	case err != nil:
		err = bailey.Errorf(bailey.CodeUsage, "understand the command line", "see baileyd image "+args[0]+" --help", "%w", err)
	case f.store == "":
		err = bailey.Errorf(bailey.CodeUsage, c.what, "give --store DIR", "it is not said where to keep it")
	case f.NArg() < c.min || f.NArg() > c.max:
		err = bailey.Errorf(bailey.CodeUsage, c.what, "name one", "there are %d names or sources", f.NArg())
	default:
		err = c.do(ctx, f, f.Args(), stdout, stderr)
	}
	if err != nil {
		return fail(stderr, f.json, err)
	}
	return 0
}

func (f *imageFlags) open() (*image.Store, error) { return image.Open(f.store, f.limits) }

func imagePrepare(ctx context.Context, f *imageFlags, args []string, stdout, _ io.Writer) error {
	s, err := f.open()
	if err != nil {
		return err
	}
	source := ""
	if len(args) > 0 {
		source = args[0]
	}
	root, err := s.Prepare(ctx, source)
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(stdout).Encode(root)
	}
	return describe(stdout, root)
}

func imagePull(ctx context.Context, f *imageFlags, args []string, stdout, stderr io.Writer) error {
	if f.config == "" {
		f.config = filepath.Join(filepath.Dir(filepath.Clean(f.store)), registry.ConfigFile)
	}
	c, err := registry.Load(f.config)
	if err != nil {
		return err
	}
	if c.DockerConfig != "" {
		if err := os.Setenv("DOCKER_CONFIG", c.DockerConfig); err != nil {
			return err
		}
	}
	s, err := f.open()
	if err != nil {
		return err
	}
	client := registry.New(c)
	defer client.Close()
	out := json.NewEncoder(stdout)
	var broken error
	p, err := s.Pull(ctx, client, args[0], func(x api.Progress) {
		if f.json && broken == nil {
			broken = out.Encode(tool.Line{Progress: &x})
		} else if !f.json {
			fmt.Fprintf(stderr, "\r\x1b[K%s %d/%d", x.Step, x.Done, x.Total)
		}
	})
	if err != nil || broken != nil {
		return errors.Join(err, broken)
	}
	if f.json {
		return out.Encode(tool.Line{Pulled: &p})
	}
	fmt.Fprintln(stderr)
	_, err = fmt.Fprintf(stdout, "%s\n%s\n", p.Name.Name, p.Name.Digest)
	return err
}

func imageList(_ context.Context, f *imageFlags, _ []string, stdout, _ io.Writer) error {
	s, err := f.open()
	if err != nil {
		return err
	}
	all, err := s.Names()
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(stdout).Encode(all)
	}
	for _, n := range all {
		if _, err := fmt.Fprintf(stdout, "%s\t%s\t%d\t%s\n", n.Name, n.Digest, n.Size, n.Created.Format(time.RFC3339)); err != nil {
			return err
		}
	}
	return nil
}

// named finds an image by its name or digest.
func named(s *image.Store, ref string) (image.Name, error) {
	if n, ok := s.NameOf(ref); ok {
		return n, nil
	}
	all, err := s.Names()
	if err != nil {
		return image.Name{}, err
	}
	for _, n := range all {
		if n.Digest == ref || n.Image == ref {
			return n, nil
		}
	}
	return image.Name{}, bailey.Errorf(bailey.CodeNotFound, "find the image", "baileyd image ls lists them", "there is no image %q in the store", ref)
}

func imageRemove(_ context.Context, f *imageFlags, args []string, _, _ io.Writer) error {
	s, err := f.open()
	if err != nil {
		return err
	}
	n, err := named(s, args[0])
	if err != nil {
		return err
	}
	return s.DropName(n.Name)
}

func imageExport(ctx context.Context, f *imageFlags, args []string, stdout, _ io.Writer) error {
	s, err := f.open()
	if err != nil {
		return err
	}
	n, err := named(s, args[0])
	if err != nil {
		return err
	}
	return s.Export(ctx, n.Image, n.Name, stdout)
}

func imageCollect(_ context.Context, f *imageFlags, _ []string, stdout, _ io.Writer) error {
	s, err := f.open()
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, d := range f.keep {
		keep[d] = true
	}
	gone, err := s.Collect(keep, time.Now(), f.dry)
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(stdout).Encode(gone)
	}
	for _, o := range gone {
		if _, err := fmt.Fprintf(stdout, "%s %s: %s (%d bytes)\n", o.Kind, o.Name, o.Why, o.Bytes); err != nil {
			return err
		}
	}
	return nil
}

func imageLayer(ctx context.Context, f *imageFlags, _ []string, stdout, _ io.Writer) error {
	s, err := f.open()
	if err != nil {
		return err
	}
	l, err := s.Add(ctx, os.Stdin)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(l)
}

func imageImport(ctx context.Context, f *imageFlags, _ []string, stdout, _ io.Writer) error {
	s, err := f.open()
	if err != nil {
		return err
	}
	p, err := s.Import(ctx, os.Stdin)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(p)
}

func imageContext(ctx context.Context, f *imageFlags, args []string, _, _ io.Writer) error {
	return image.Unpack(ctx, os.Stdin, args[0], f.limits)
}

// imageFetch gets a URL. It runs in a sandbox, where the gate decides.
func imageFetch(ctx context.Context, _ *imageFlags, args []string, stdout, _ io.Writer) error {
	const what = "fetch the file"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return bailey.Errorf(bailey.CodeUsage, what, "", "%w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return bailey.Errorf(bailey.CodeBuildFailed, what, "", "%w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // the gate says there what it refuses, and why
		return bailey.Errorf(bailey.CodeBuildFailed, what, "", "the answer is %s: %s", resp.Status, bytes.TrimSpace(said))
	}
	if _, err := io.Copy(stdout, resp.Body); err != nil {
		return bailey.Errorf(bailey.CodeBuildFailed, what, "", "%w", err)
	}
	return nil
}

func describe(w io.Writer, r rootfs.Root) error {
	var b strings.Builder
	fmt.Fprintf(&b, "kind    %s\ndigest  %s\nids     %s\n", r.Kind, r.Digest, r.IDs)
	for _, l := range r.Layers {
		fmt.Fprintf(&b, "layer   %s\n", l)
	}
	for _, m := range r.Binds {
		fmt.Fprintf(&b, "bind    %s at %s\n", m.Source, m.Target)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note    %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
