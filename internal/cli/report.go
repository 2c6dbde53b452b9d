package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// shownChanges is how many paths a summary names before it counts the rest.
const shownChanges = 20

// report deals with what a run left: it tells how the command ended, and
// applies, discards or keeps the changes as asked.
func (f *runFlags) report(inv *invocation, write appender, out *run.Outcome) (int, error) {
	ctx := context.Background()
	code := out.End.Code()
	failure := run.StartError(f.Request, out.End)
	if out.Failed != nil {
		code, failure = bailey.ExitBailey, out.Failed
	}
	if !inv.JSON {
		f.tell(inv, out, failure)
	}
	var set *changes.Set
	var err error
	fate := fateNone
	look := changes.Seal
	if out.Failed != nil {
		// Copies of what is still to be taken back are in the run's folder: it is
		// neither sealed nor removed, whatever was asked for.
		look = changes.Scan
	}
	if !out.Unchanged || inv.JSON {
		if set, err = look(ctx, out.Run); err != nil {
			return bailey.ExitBailey, err
		}
		if out.Failed != nil || !set.Summary().Empty() {
			fate = fateKept
		}
	}
	if fate == fateKept && !inv.JSON {
		if f.discard && out.Failed == nil {
			inv.Say("%s", set.Summary()) // what is thrown away unseen needs no names
		} else {
			fmt.Fprintf(inv.Stderr, "bailey: ")
			set.WriteSummary(inv.Stderr, shownChanges)
		}
	}
	var applied *changes.Report
	switch {
	case fate == fateNone, out.Failed != nil:
	case f.apply:
		fate = fateApplied
	case f.discard:
		fate = fateDiscarded
	case !f.keep && !inv.JSON && terminal.Is(os.Stdin) && terminal.Is(os.Stderr):
		if fate, err = ask(ctx, inv, out.Run, set); err != nil {
			return bailey.ExitBailey, err
		}
	}
	switch fate {
	case fateNone:
		err = out.Run.Remove()
	case fateDiscarded:
		if err = discardLogged(write, out.Run); err == nil && !inv.JSON {
			inv.Say("discarded")
		}
	case fateApplied:
		applied, err = logged(write, out.Run.ID(), "apply", set, func() (*changes.Report, error) {
			return changes.Apply(ctx, out.Run, set, changes.ApplyOptions{})
		})
		if err == nil && !inv.JSON {
			fmt.Fprintf(inv.Stderr, "bailey: ")
			applied.Write(inv.Stderr)
		}
		if err == nil && !applied.Complete() {
			fate = fateKept
			if code == 0 {
				code = bailey.ExitBailey // the caller asked for all of it
			}
		}
	}
	if fate == fateKept && !inv.JSON {
		inv.Say("kept as %s: `bailey changes %[1]s` shows it, `bailey apply %[1]s` applies it, `bailey discard %[1]s` throws it away", out.Run.ID())
	}
	if err != nil {
		return bailey.ExitBailey, err
	}
	if inv.JSON {
		return code, f.print(inv, out, set, fate, applied, failure)
	}
	return code, nil
}

// fate is what became of the changes.
type fate string

const (
	fateNone      fate = "none"
	fateKept      fate = "kept"
	fateApplied   fate = "applied"
	fateDiscarded fate = "discarded"
)

// tell says on stderr what a person should know about how it ended.
func (f *runFlags) tell(inv *invocation, out *run.Outcome, failure error) {
	if f.verbose {
		for _, n := range out.Notes {
			inv.Say("%s: %s", terminal.Printable(n.Subject), terminal.Printable(n.Text))
		}
		inv.Say("isolation %s: %s", f.Level, f.LevelReason)
	}
	if failure != nil {
		inv.Fail(failure)
	}
	if out.End.Reason == bailey.EndNotStarted {
		return
	}
	switch out.End.Reason {
	case bailey.EndExit, bailey.EndSignal:
	default:
		inv.Say("the command was %s [%s]", out.End, out.End.Reason)
	}
	for _, l := range out.End.LimitHits {
		inv.Say("the limit %s was reached on the way", l)
	}
	tellEgress(inv, out.Egress)
	if out.Leftover != nil {
		inv.Say("not everything could be given back: %s", terminal.Printable(out.Leftover.Error()))
	}
}

// result is the one object that --json prints.
type result struct {
	Run       string           `json:"run,omitempty"` // set while its changes are kept
	Isolation bailey.Isolation `json:"isolation"`
	Reason    string           `json:"isolation_reason"`
	End       bailey.End       `json:"end"`
	Error     *bailey.Error    `json:"error,omitempty"`
	Egress    *run.Egress      `json:"egress,omitempty"`
	Stdout    output           `json:"stdout"`
	Stderr    output           `json:"stderr"`
	Changes   json.RawMessage  `json:"changes"`
	Fate      fate             `json:"changes_are"`
	Apply     *changes.Report  `json:"apply,omitempty"`
}

// output is a command's output: text where it is, base64 where it is not.
type output struct {
	Encoding string `json:"encoding"` // utf-8 or base64
	Data     string `json:"data"`
}

func readOutput(file *os.File) (output, error) {
	defer file.Close()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return output{}, err
	}
	b, err := io.ReadAll(file)
	if err != nil {
		return output{}, err
	}
	if utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		return output{"utf-8", string(b)}, nil
	}
	return output{"base64", base64.StdEncoding.EncodeToString(b)}, nil
}

func (f *runFlags) print(inv *invocation, out *run.Outcome, set *changes.Set, fate fate, applied *changes.Report, failure error) error {
	r := result{Isolation: f.Level, Reason: f.LevelReason, End: out.End, Egress: out.Egress, Fate: fate, Apply: applied}
	if failure != nil {
		r.Error = inv.Explain(failure)
	}
	if fate == fateKept || fate == fateApplied {
		r.Run = out.Run.ID()
	}
	var err error
	if r.Stdout, err = readOutput(f.Capture.Out); err != nil {
		return err
	}
	if r.Stderr, err = readOutput(f.Capture.Err); err != nil {
		return err
	}
	var list bytes.Buffer
	if err := set.WriteJSON(&list); err != nil {
		return err
	}
	r.Changes = list.Bytes()
	enc := json.NewEncoder(inv.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// lockRun finds a run and takes its lock.
func lockRun(ref string) (*folder.Run, error) {
	f, err := openFolder()
	if err != nil {
		return nil, err
	}
	r, err := f.Find(ref)
	if err != nil {
		return nil, err
	}
	return r, r.Lock()
}
