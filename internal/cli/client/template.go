package client

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/cli/values"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

func templateCommand(inv *invocation) (int, error) {
	return inv.second(verbs{"build": buildTemplate, "ls": listTemplates, "rm": removeTemplates, "export": exportTemplate})
}

func buildTemplate(inv *invocation) error {
	var spec api.BuildSpec
	var args []string
	var start, ready string
	fs := inv.Flags
	fs.StringVarP(&spec.Name, "tag", "t", "", "what it is called: NAME[:TAG]")
	fs.StringVarP(&spec.Dockerfile, "file", "f", "", "the Dockerfile, a path in the folder; default Dockerfile")
	fs.StringVar(&spec.Target, "target", "", "the stage to build")
	fs.StringArrayVar(&args, "build-arg", nil, "NAME=VALUE for ARG, or NAME to pass it on")
	fs.StringArrayVar(&spec.Secrets, "secret", nil, "a secret of the store, for RUN --mount=type=secret")
	fs.BoolVar(&spec.NoCache, "no-cache", false, "run every step")
	fs.StringVar(&start, "start", "", "a line for sh that runs in each sandbox from its beginning")
	fs.StringVar(&ready, "ready", "", "a line for sh that succeeds once that is up")
	fs.IntVar(&spec.Warm, "warm", 0, "how many sandboxes of it are kept ready")
	fs.StringArrayVar(&spec.Allow, "allow", nil, "let steps reach HOST[:PORT]")
	fs.StringArrayVar(&spec.Profiles, "profile", nil, "let steps reach what a profile names")
	list, err := inv.some(1, 1, "-t NAME FOLDER")
	if err != nil {
		return err
	}
	if spec.Name == "" {
		return bailey.Errorf(bailey.CodeUsage, "build a template", "give -t NAME", "it has no name")
	}
	if spec.Args, err = environment(args); err != nil {
		return err
	}
	if start != "" {
		spec.Start = []string{"/bin/sh", "-c", start}
	}
	if ready != "" {
		spec.Ready = []string{"/bin/sh", "-c", ready}
	}
	fi, err := os.Stat(list[0])
	if err != nil || !fi.IsDir() {
		return bailey.Errorf(bailey.CodeNotFound, "build from "+terminal.Printable(list[0]), "name the folder with the Dockerfile", "it is no folder")
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	packed := make(chan []string, 1)
	go func() {
		p := packer{root: filepath.Clean(list[0]), tar: tar.NewWriter(w)}
		err := p.pack()
		packed <- p.skipped
		w.CloseWithError(err) // nil is the end of the archive
	}()
	bar := inv.progress()
	t, err := c.BuildTemplate(inv.ctx, spec, r, bar.show)
	r.CloseWithError(io.ErrClosedPipe) // whoever packs ends
	bar.end()
	for _, p := range <-packed {
		inv.Say("left out: %s", terminal.Printable(p))
	}
	if err != nil {
		return err
	}
	if inv.JSON {
		return inv.line(t)
	}
	fmt.Fprintln(inv.Stdout, t.Name, t.Digest)
	return nil
}

func listTemplates(inv *invocation) error {
	if err := inv.Alone(); err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	list, err := c.Templates(inv.ctx)
	if err != nil {
		return err
	}
	return inv.print(list, func(w io.Writer) {
		rows := [][]string{{"NAME", "STATE", "AGE", "SIZE", "USED BY", "START"}}
		for _, t := range list {
			rows = append(rows, []string{t.Name, t.State, ago(t.Created), size(t.Size), fmt.Sprint(t.Refs), terminal.Shorten(strings.Join(t.Start, " "), 40)})
		}
		table(w, rows)
	})
}

func removeTemplates(inv *invocation) error {
	return inv.eachNamed("NAME...", func(c *client.Client, name string) error { return c.DeleteTemplate(inv.ctx, name) })
}

func exportTemplate(inv *invocation) error {
	file := inv.Flags.StringP("output", "o", "-", "the file to write")
	args, err := inv.some(1, 1, "NAME")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	r, err := c.ExportTemplate(inv.ctx, args[0])
	if err != nil {
		return err
	}
	defer r.Close() // its end said whether it was whole
	return inv.save(*file, r)
}

func imageCommand(inv *invocation) (int, error) {
	return inv.second(verbs{"pull": pullImage, "ls": listImages, "rm": removeImages})
}

func pullImage(inv *invocation) error {
	args, err := inv.some(1, 1, "REFERENCE")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	bar := inv.progress()
	img, err := c.PullImage(inv.ctx, args[0], bar.show)
	bar.end()
	if err != nil {
		return err
	}
	if inv.JSON {
		return inv.line(img)
	}
	fmt.Fprintln(inv.Stdout, terminal.Printable(img.Ref), img.Digest)
	return nil
}

func listImages(inv *invocation) error {
	if err := inv.Alone(); err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	list, err := c.Images(inv.ctx)
	if err != nil {
		return err
	}
	return inv.print(list, func(w io.Writer) {
		rows := [][]string{{"REFERENCE", "DIGEST", "AGE", "SIZE", "LAYERS", "USED BY"}}
		for _, i := range list {
			rows = append(rows, []string{i.Ref, terminal.Shorten(i.Digest, 23), ago(i.Created), size(i.Size), fmt.Sprint(i.Layers), fmt.Sprint(i.Refs)})
		}
		table(w, rows)
	})
}

func removeImages(inv *invocation) error {
	return inv.eachNamed("REFERENCE...", func(c *client.Client, ref string) error { return c.DeleteImage(inv.ctx, ref) })
}

func volumeCommand(inv *invocation) (int, error) {
	return inv.second(verbs{"create": createVolume, "ls": listVolumes, "rm": removeVolumes})
}

func createVolume(inv *invocation) error {
	var limit int64
	inv.Flags.Var(values.Bytes{To: &limit}, "size", "what fits in; default no limit of its own")
	args, err := inv.some(1, 1, "NAME")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	v, err := c.CreateVolume(inv.ctx, args[0], limit)
	if err != nil {
		return err
	}
	return inv.print(v, func(w io.Writer) { fmt.Fprintln(w, v.Name) })
}

func listVolumes(inv *invocation) error {
	if err := inv.Alone(); err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	list, err := c.Volumes(inv.ctx)
	if err != nil {
		return err
	}
	return inv.print(list, func(w io.Writer) {
		rows := [][]string{{"NAME", "AGE", "USED", "LIMIT", "SANDBOXES"}}
		for _, v := range list {
			limit := "none"
			if v.Limit > 0 {
				limit = size(v.Limit)
			}
			rows = append(rows, []string{v.Name, ago(v.Created), size(v.Size), limit, strings.Join(v.Users, " ")})
		}
		table(w, rows)
	})
}

func removeVolumes(inv *invocation) error {
	return inv.eachNamed("NAME...", func(c *client.Client, name string) error { return c.DeleteVolume(inv.ctx, name) })
}
