package client

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

func snapshotCommand(inv *invocation) (int, error) {
	return inv.second(verbs{"create": createSnapshot, "ls": listSnapshots, "show": showSnapshot, "rm": removeSnapshots, "export": exportSnapshot, "import": importSnapshot})
}

func createSnapshot(inv *invocation) error {
	var spec api.SnapshotSpec
	var labels []string
	inv.Flags.StringVar(&spec.Name, "name", "", "a second way to refer to it")
	inv.Flags.StringArrayVar(&labels, "label", nil, "NAME=VALUE to find it by")
	inv.Flags.BoolVar(&spec.Memory, "memory", false, "memory too, at the levels that can")
	inv.Flags.Var(lifetime{&spec.Expires}, "expires", "delete it after this time; default never")
	s, err := inv.one("SANDBOX")
	if err != nil {
		return err
	}
	if spec.Labels, err = pairs(labels, "label"); err != nil {
		return err
	}
	snap, err := s.Snapshot(inv.ctx, spec)
	if err != nil {
		return err
	}
	return inv.showTaken(snap)
}

func (inv *invocation) showTaken(snap api.Snapshot) error {
	return inv.print(snap, func(w io.Writer) {
		fmt.Fprintln(w, snap.ID)
		if terminal.Is(os.Stderr) {
			inv.Say("%s", terminal.Printable(receipt(snap.Receipt)))
		}
	})
}

func listSnapshots(inv *invocation) error {
	all := inv.Flags.Bool("checkpoints", false, "checkpoints, too")
	args, err := inv.some(0, 1, "[SANDBOX]")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	list, err := c.Snapshots(inv.ctx, strings.Join(args, ""), *all)
	if err != nil {
		return err
	}
	return inv.print(list, func(w io.Writer) {
		rows := [][]string{{"ID", "NAME", "SANDBOX", "AGE", "EXPIRES", "SIZE", "LAYERS", "USED BY"}}
		for _, s := range list {
			rows = append(rows, []string{s.ID, s.Name, s.Sandbox, ago(s.Created), until(s.Expires), size(s.Bytes), fmt.Sprint(s.Layers), fmt.Sprint(s.Refs)})
		}
		table(w, rows)
	})
}

func showSnapshot(inv *invocation) error {
	args, err := inv.some(1, 1, "SNAPSHOT")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	s, err := c.Snapshot(inv.ctx, args[0])
	if err != nil {
		return err
	}
	return inv.print(s, func(w io.Writer) {
		table(w, [][]string{{"id", s.ID}, {"name", s.Name}, {"sandbox", s.Sandbox}, {"created", s.Created.Local().Format(time.DateTime)},
			{"expires", until(s.Expires)}, {"hash", s.Hash}, {"size", size(s.Bytes)}, {"receipt", receipt(s.Receipt)}})
	})
}

func removeSnapshots(inv *invocation) error {
	return inv.eachNamed("SNAPSHOT...", func(c *client.Client, ref string) error { return c.DeleteSnapshot(inv.ctx, ref) })
}

func exportSnapshot(inv *invocation) error {
	file := inv.Flags.StringP("output", "o", "-", "the file to write")
	args, err := inv.some(1, 1, "SNAPSHOT")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	r, err := c.ExportSnapshot(inv.ctx, args[0])
	if err != nil {
		return err
	}
	defer r.Close() // its end said whether it was whole
	return inv.save(*file, r)
}

// save writes an archive to a file, whole or not at all, or to standard output if
// that is no terminal.
func (inv *invocation) save(file string, r io.Reader) error {
	if file != "-" {
		_, err := writeWhole(file, r)
		return err
	}
	if terminal.Is(os.Stdout) {
		return bailey.Errorf(bailey.CodeUsage, "write an archive to a terminal", "give -o FILE or redirect the output", "it is no text")
	}
	_, err := io.Copy(os.Stdout, r)
	return err
}

func importSnapshot(inv *invocation) error {
	name := inv.Flags.String("name", "", "a second way to refer to it")
	args, err := inv.some(1, 1, "FILE")
	if err != nil {
		return err
	}
	var in io.Reader = os.Stdin
	if args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return bailey.Errorf(bailey.CodeNotFound, "import "+terminal.Printable(args[0]), "", "%w", err)
		}
		defer f.Close() // it was only read
		in = f
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	snap, err := c.ImportSnapshot(inv.ctx, *name, in)
	if err != nil {
		return err
	}
	return inv.showTaken(snap)
}

func forkCommand(inv *invocation) (int, error) {
	var req api.ForkRequest
	var labels []string
	inv.Flags.IntVar(&req.Count, "count", 1, "how many")
	inv.Flags.StringVar(&req.Name, "name", "", "its name, with a count of 1")
	inv.Flags.BoolVar(&req.Memory, "memory", false, "memory too, at the levels that can")
	inv.Flags.StringArrayVar(&labels, "label", nil, "NAME=VALUE on top of the parent's")
	s, err := inv.one("SANDBOX")
	if err != nil {
		return 0, err
	}
	if req.Labels, err = pairs(labels, "label"); err != nil {
		return 0, err
	}
	list, err := s.Fork(inv.ctx, req)
	if err != nil {
		return 0, err
	}
	ids := make([]string, len(list))
	for i, f := range list {
		ids[i] = f.Ref()
	}
	return 0, inv.print(ids, func(w io.Writer) {
		for _, id := range ids {
			fmt.Fprintln(w, id)
		}
	})
}

func checkpointCommand(inv *invocation) (int, error) {
	name := inv.Flags.String("name", "", "what it is called")
	s, err := inv.one("SANDBOX")
	if err != nil {
		return 0, err
	}
	snap, err := s.Checkpoint(inv.ctx, *name)
	if err != nil {
		return 0, err
	}
	return 0, inv.showTaken(snap)
}

func diffCommand(inv *invocation) (int, error) {
	from := inv.Flags.String("from", "", "a snapshot or checkpoint; default what it started from")
	to := inv.Flags.String("to", "", "a snapshot or checkpoint; default now")
	s, err := inv.one("SANDBOX")
	if err != nil {
		return 0, err
	}
	for ch, err := range s.Diff(inv.ctx, *from, *to) {
		switch {
		case err != nil:
			return 0, err
		case inv.JSON:
			if err := inv.line(ch); err != nil {
				return 0, err
			}
		default:
			fmt.Fprintf(inv.Stdout, "%-8s %s\n", ch.Op, terminal.Printable(ch.Path))
		}
	}
	return 0, nil
}

func undoCommand(inv *invocation) (int, error) {
	var req api.UndoRequest
	inv.Flags.StringVar(&req.To, "to", "", "a snapshot or checkpoint; default the last checkpoint")
	inv.Flags.IntVar(&req.Steps, "steps", 0, "or so many checkpoints back")
	inv.Flags.BoolVar(&req.Kill, "kill", false, "end what runs in it")
	s, err := inv.one("SANDBOX")
	if err != nil {
		return 0, err
	}
	r, err := s.Undo(inv.ctx, req)
	if err != nil {
		return 0, err
	}
	return 0, inv.print(r, func(w io.Writer) { fmt.Fprintln(w, terminal.Printable(receipt(r))) })
}

func bisectCommand(inv *invocation) (int, error) {
	var req api.BisectRequest
	inv.Flags.StringVar(&req.Good, "good", "", "a checkpoint at which the command succeeds")
	inv.Flags.StringVar(&req.Bad, "bad", "", "one at which it fails; default now")
	before, cmd, err := inv.split()
	if err != nil {
		return 0, err
	}
	if len(before) != 1 || len(cmd) == 0 || req.Good == "" {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey bisect", "call it as bailey bisect --good CHECKPOINT SANDBOX -- CMD...", "something is missing")
	}
	req.Args = cmd
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	res, err := c.Sandbox(before[0]).Bisect(inv.ctx, req)
	if err != nil {
		return 0, err
	}
	return 0, inv.print(res, func(w io.Writer) {
		for _, t := range res.Tried {
			fmt.Fprintf(w, "%s exited with status %d\n", t.Snapshot, t.ExitCode)
		}
		fmt.Fprintln(w, "first bad:", res.First)
		if res.Exec != "" {
			fmt.Fprintln(w, "ran between:", terminal.Printable(res.Exec))
		}
	})
}
