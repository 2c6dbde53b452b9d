package client

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// side is SANDBOX:PATH, or a path of this machine.
type side struct{ sandbox, path string }

func readSide(text string) side {
	ref, p, ok := strings.Cut(text, ":")
	if !ok || strings.ContainsAny(ref, "/.") || ref == "" {
		return side{path: text}
	}
	return side{ref, p}
}

func copyCommand(inv *invocation) (int, error) {
	ignore := inv.Flags.Bool("respect-gitignore", false, "leave out what the folder's .gitignore files name, and list it")
	args, err := inv.some(2, 2, "SOURCE TARGET")
	if err != nil {
		return 0, err
	}
	from, to := readSide(args[0]), readSide(args[1])
	if (from.sandbox == "") == (to.sandbox == "") {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey cp", "name exactly one side as SANDBOX:PATH", "copies go between this machine and one sandbox")
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	if to.sandbox != "" {
		return 0, inv.upload(c.Sandbox(to.sandbox), from.path, to.path, *ignore)
	}
	return 0, inv.download(c.Sandbox(from.sandbox), from.path, to.path)
}

// upload copies a file or folder in. "-" is standard input.
func (inv *invocation) upload(s *client.Sandbox, source, target string, ignore bool) error {
	what := "copy " + terminal.Printable(source)
	var in io.Reader = os.Stdin
	perm := fs.FileMode(0o644)
	if source != "-" {
		fi, err := os.Stat(source)
		if err != nil {
			return bailey.Errorf(bailey.CodeNotFound, what, "", "%w", err)
		}
		if fi.IsDir() {
			return inv.uploadFolder(s, source, target, ignore)
		}
		if strings.HasSuffix(target, "/") || target == "" {
			target += filepath.Base(source)
		}
		f, err := os.Open(source)
		if err != nil {
			return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
		}
		defer f.Close() // it was only read
		in, perm = f, fi.Mode().Perm()
	}
	w, err := s.Files().Write(inv.ctx, target, in, perm)
	if err != nil {
		return err
	}
	return inv.print(w, func(o io.Writer) {
		fmt.Fprintf(o, "%s  %s  %s\n", terminal.Printable(w.Path), size(w.Size), w.SHA256)
	})
}

// uploadFolder sends all that is in a folder as an archive, as it is packed.
func (inv *invocation) uploadFolder(s *client.Sandbox, source, target string, ignore bool) error {
	var rules ignored
	if ignore {
		var err error
		if rules, err = readIgnored(source); err != nil {
			return err
		}
	}
	r, w := io.Pipe()
	skipped := make(chan []string, 1)
	go func() {
		p := packer{root: source, tar: tar.NewWriter(w), ignore: rules}
		err := p.pack()
		skipped <- p.skipped
		w.CloseWithError(err) // nil is the end of the archive
	}()
	res, err := s.Files().TarIn(inv.ctx, target, r)
	r.CloseWithError(errors.New("the daemon reads no more")) // whoever packs ends
	left := <-skipped
	if err != nil {
		return err
	}
	res.Skipped = append(left, res.Skipped...)
	return inv.print(res, func(o io.Writer) {
		fmt.Fprintf(o, "%d files, %s\n", res.Files, size(res.Bytes))
		for _, p := range res.Skipped {
			fmt.Fprintln(o, "left out:", terminal.Printable(p))
		}
	})
}

// download copies a file or folder out. "-" is standard output. Nothing that a
// sandbox names leads out of the target.
func (inv *invocation) download(s *client.Sandbox, source, target string) error {
	info, err := s.Files().Stat(inv.ctx, source)
	if err != nil {
		return err
	}
	if info.Type == "dir" {
		return inv.downloadFolder(s, source, target)
	}
	r, _, err := s.Files().Open(inv.ctx, source, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close() // its end said whether it was whole
	if target == "-" {
		_, err := io.Copy(os.Stdout, r)
		return err
	}
	if fi, err := os.Stat(target); err == nil && fi.IsDir() {
		target = filepath.Join(target, path.Base(path.Clean("/"+source)))
	}
	n, err := writeWhole(target, r)
	if err != nil {
		return err
	}
	return inv.print(map[string]any{"path": target, "size": n}, func(o io.Writer) { fmt.Fprintf(o, "%s  %s\n", terminal.Printable(target), size(n)) })
}

// writeWhole replaces a file by all that r gives, or not at all.
func writeWhole(target string, r io.Reader) (int64, error) {
	what := "write " + target
	f, err := os.CreateTemp(filepath.Dir(target), ".bailey-*")
	if err != nil {
		return 0, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	defer os.Remove(f.Name()) // it is not there any more when all went well
	n, err := io.Copy(f, r)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil && bailey.CodeOf(err) == bailey.CodeInternal {
		err = bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	return n, err
}

// downloadFolder unpacks the archive of a folder below target.
func (inv *invocation) downloadFolder(s *client.Sandbox, source, target string) error {
	r, err := s.Files().TarOut(inv.ctx, source)
	if err != nil {
		return err
	}
	defer r.Close() // its end said whether it was whole
	u := unpacker{}
	if err := u.unpack(target, r); err != nil {
		return err
	}
	return inv.print(map[string]any{"path": target, "files": u.files, "bytes": u.bytes, "skipped": u.skipped}, func(o io.Writer) {
		fmt.Fprintf(o, "%s  %d files, %s\n", terminal.Printable(target), u.files, size(u.bytes))
		for _, p := range u.skipped {
			fmt.Fprintln(o, "left out:", terminal.Printable(p))
		}
	})
}
