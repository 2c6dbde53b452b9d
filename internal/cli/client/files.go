package client

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

func filesCommand(inv *invocation) (int, error) {
	return inv.second(verbs{
		"ls": listFiles, "stat": statFile, "cat": catFile, "write": writeFile, "mkdir": makeFolder,
		"mv": moveFile, "rm": removeFile, "watch": watchFiles, "search": searchFiles,
	})
}

// files reads the arguments of a files command, and gives the sandbox's files and
// what comes behind the sandbox.
func (inv *invocation) files(n int, names string) (*client.Files, []string, error) {
	args, err := inv.some(n+1, n+1, "SANDBOX "+names)
	if err != nil {
		return nil, nil, err
	}
	c, err := inv.connect()
	if err != nil {
		return nil, nil, err
	}
	return c.Sandbox(args[0]).Files(), args[1:], nil
}

func listFiles(inv *invocation) error {
	depth := inv.Flags.Int("depth", 1, "how many levels")
	f, args, err := inv.files(1, "PATH")
	if err != nil {
		return err
	}
	rows := [][]string{}
	for fi, err := range f.List(inv.ctx, args[0], *depth) {
		switch {
		case err != nil:
			return err
		case inv.JSON:
			if err := inv.line(fi); err != nil {
				return err
			}
		default:
			rows = append(rows, fileRow(fi))
		}
	}
	table(inv.Stdout, rows)
	return nil
}

func fileRow(fi api.FileInfo) []string {
	name := fi.Path
	if len(fi.PathBytes) > 0 {
		name = string(fi.PathBytes)
	}
	if fi.Target != "" {
		name += " -> " + fi.Target
	}
	return []string{fi.Type, fi.Mode, fmt.Sprintf("%d:%d", fi.UID, fi.GID), strconv.FormatInt(fi.Size, 10), fi.ModTime.Local().Format(time.DateTime), name}
}

func statFile(inv *invocation) error {
	f, args, err := inv.files(1, "PATH")
	if err != nil {
		return err
	}
	fi, err := f.Stat(inv.ctx, args[0])
	if err != nil {
		return err
	}
	return inv.print(fi, func(w io.Writer) { table(w, [][]string{fileRow(fi)}) })
}

func catFile(inv *invocation) error {
	f, args, err := inv.files(1, "PATH")
	if err != nil {
		return err
	}
	r, _, err := f.Open(inv.ctx, args[0], 0, -1)
	if err != nil {
		return err
	}
	defer r.Close() // its end said whether it was whole
	out, _ := inv.outputs()
	_, err = io.Copy(out, r)
	return err
}

func writeFile(inv *invocation) error {
	mode := inv.Flags.String("mode", "0644", "its permissions, in octal")
	f, args, err := inv.files(1, "PATH < CONTENT")
	if err != nil {
		return err
	}
	perm, err := strconv.ParseUint(*mode, 8, 12)
	if err != nil {
		return bailey.Errorf(bailey.CodeUsage, "read --mode "+*mode, "write it like 0644", "%w", err)
	}
	w, err := f.Write(inv.ctx, args[0], os.Stdin, os.FileMode(perm))
	if err != nil {
		return err
	}
	return inv.print(w, func(o io.Writer) { fmt.Fprintf(o, "%s  %d  %s\n", terminal.Printable(w.Path), w.Size, w.SHA256) })
}

func makeFolder(inv *invocation) error {
	f, args, err := inv.files(1, "PATH")
	if err != nil {
		return err
	}
	return f.Mkdir(inv.ctx, args[0], 0)
}

func moveFile(inv *invocation) error {
	f, args, err := inv.files(2, "FROM TO")
	if err != nil {
		return err
	}
	return f.Move(inv.ctx, args[0], args[1])
}

func removeFile(inv *invocation) error {
	all := inv.Flags.BoolP("recursive", "r", false, "a folder with all in it")
	f, args, err := inv.files(1, "PATH")
	if err != nil {
		return err
	}
	return f.Remove(inv.ctx, args[0], *all)
}

func watchFiles(inv *invocation) error {
	f, args, err := inv.files(1, "PATH")
	if err != nil {
		return err
	}
	return inv.ended(f.Watch(inv.ctx, args[0], func() { inv.Say("watching") }, func(ev api.WatchEvent) error {
		if inv.JSON {
			return inv.line(ev)
		}
		_, err := fmt.Fprintln(inv.Stdout, ev.Op, terminal.Printable(ev.Path))
		return err
	}))
}

func searchFiles(inv *invocation) error {
	var q api.SearchQuery
	inv.Flags.StringVar(&q.Name, "name", "", "a glob for names")
	inv.Flags.StringVar(&q.Text, "text", "", "what a line has")
	inv.Flags.BoolVar(&q.Regexp, "regexp", false, "--text is a regular expression")
	inv.Flags.IntVar(&q.MaxHits, "max", 0, "how many at most; default 1000")
	f, args, err := inv.files(1, "PATH")
	if err != nil {
		return err
	}
	q.Path = args[0]
	res, err := f.Search(inv.ctx, q)
	if err != nil {
		return err
	}
	return inv.print(res, func(w io.Writer) {
		for _, h := range res.Hits {
			if h.Line > 0 {
				fmt.Fprintf(w, "%s:%d:%s\n", terminal.Printable(h.Path), h.Line, terminal.Printable(h.Text))
			} else {
				fmt.Fprintln(w, terminal.Printable(h.Path))
			}
		}
		for _, p := range res.Skipped {
			fmt.Fprintln(inv.Stderr, "not looked into:", terminal.Printable(p))
		}
		if res.Cut {
			inv.Say("there is more: raise --max")
		}
	})
}
