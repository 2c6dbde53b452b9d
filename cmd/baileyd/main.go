package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

const usage = `Usage: baileyd image prepare [flags] --store DIR [SOURCE]

Prepares a root file system and says where it is. SOURCE is a folder, a tar
(plain, gzip, zstd or bzip2; also an archive of images), an OCI image layout,
or "host" for the built-in template over this machine's own /usr, which is the
default. Behind a layout or archive of several images: :NAME or @sha256:DIGEST.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) < 2 || args[0] != "image" || args[1] != "prepare" {
		fmt.Fprint(stderr, usage)
		return bailey.ExitBailey
	}
	limits := unpack.DefaultLimits
	flags := pflag.NewFlagSet("baileyd image prepare", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	store := flags.String("store", "", "folder that holds prepared root file systems")
	asJSON := flags.Bool("json", false, "print JSON")
	flags.Int64Var(&limits.Entries, "max-entries", limits.Entries, "entries in one layer")
	flags.Int64Var(&limits.Bytes, "max-bytes", limits.Bytes, "bytes of one uncompressed layer")
	flags.Int64Var(&limits.Names, "max-names", limits.Names, "bytes of all names in one layer")
	flags.IntVar(&limits.Path, "max-path", limits.Path, "bytes of one name")
	flags.IntVar(&limits.Depth, "max-depth", limits.Depth, "components of one name")
	flags.Int64Var(&limits.Ratio, "max-ratio", limits.Ratio, "times its compressed size a layer may grow to")
	err := flags.Parse(args[2:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, usage+flags.FlagUsages())
		return 0
	case err != nil:
		return fail(stderr, *asJSON, bailey.Errorf(bailey.CodeUsage, "understand the command line", "see baileyd image prepare --help", "%w", err))
	case *store == "":
		return fail(stderr, *asJSON, bailey.Errorf(bailey.CodeUsage, "prepare a root file system", "give --store DIR", "it is not said where to keep it"))
	case flags.NArg() > 1:
		return fail(stderr, *asJSON, bailey.Errorf(bailey.CodeUsage, "prepare a root file system", "name one source", "there are %d sources", flags.NArg()))
	}
	root, err := prepare(ctx, *store, flags.Arg(0), limits)
	if err != nil {
		return fail(stderr, *asJSON, err)
	}
	if *asJSON {
		err = json.NewEncoder(stdout).Encode(root)
	} else {
		err = describe(stdout, root)
	}
	if err != nil {
		return fail(stderr, *asJSON, err)
	}
	return 0
}

func prepare(ctx context.Context, dir, source string, limits unpack.Limits) (rootfs.Root, error) {
	s, err := image.Open(dir, limits)
	if err != nil {
		return rootfs.Root{}, err
	}
	return s.Prepare(ctx, source)
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

func fail(w io.Writer, asJSON bool, err error) int {
	var own *bailey.Error
	if !errors.As(err, &own) {
		code := bailey.CodeInternal
		if errors.Is(err, context.Canceled) {
			err, code = errors.New("it was interrupted"), bailey.CodeBusy
		}
		own = bailey.Errorf(code, "prepare a root file system", "try again", "%w", err)
	}
	if asJSON {
		_ = json.NewEncoder(w).Encode(own) // nowhere is left to report to
	} else {
		fmt.Fprintln(w, "baileyd:", own)
	}
	return bailey.ExitBailey
}
