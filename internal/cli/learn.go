package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// policyCommand is baileyd's, but for learning from a command, which runs it.
func policyCommand(inv *invocation) (int, error) {
	learn := len(inv.Args) > 0 && inv.Args[0] == "learn"
	if !learn || slices.ContainsFunc(inv.Args, func(a string) bool { return a == "--from-audit" || strings.HasPrefix(a, "--from-audit=") }) {
		return delegateCommand(inv)
	}
	inv.Name, inv.Command.Args, inv.Args = "policy learn", "[flags] -- CMD...", inv.Args[1:]
	inv.Short = "run a command with everything let out, propose the least policy for it, and run it under that"
	f := &runFlags{}
	f.register(inv)
	file := inv.Flags.StringP("out", "o", "", "write the policy to this `FILE`")
	inv.Flags.String("from-audit", "", "learn from a `RUN` that was, and run nothing")
	cmd, err := inv.Parse()
	if err != nil {
		return 0, err
	}
	if err := f.refuse(inv, cmd); err != nil {
		return 0, err
	}
	n := &f.net
	if inv.JSON || len(f.writable) > 0 || f.apply || f.keep || n.policy != "" || len(n.allow)+len(n.profiles) > 0 || n.none.set {
		return 0, bailey.Errorf(bailey.CodeUsage, "learn a policy", "leave it out",
			"--json, --writable, --apply, --keep, --policy, --allow, --profile and --net make no sense here: the command runs twice, its changes are thrown away, and the policy is what is looked for")
	}
	return inv.learn(f, cmd, *file)
}

// recording is the policy that a command is recorded under.
const recording = "version: 1\nmode: audit\n"

// learned is what baileyd proposes.
type learned struct {
	Document string   `json:"document"`
	Acts     int      `json:"acts"`
	Notes    []string `json:"notes"`
}

// exitUnproven is the exit code when the command did not do under the policy what
// it did without.
const exitUnproven = 1

func (inv *invocation) learn(f *runFlags, cmd []string, file string) (int, error) {
	dir, err := os.MkdirTemp("", "bailey-learn-")
	if err != nil {
		return 0, bailey.Errorf(bailey.CodeStorage, "learn a policy", "", "%w", err)
	}
	defer os.RemoveAll(dir)
	inv.Say("WARNING: the command runs with nothing denied: whatever it sends, to whomever, gets out. What it does is recorded.")
	first, err := inv.under(*f, cmd, filepath.Join(dir, "recording.yaml"), recording)
	if err != nil {
		return 0, err
	}
	inv.Say("recorded as %s; the command: %s", first.id, first.end)
	daemon, err := program("baileyd")
	if err != nil {
		return 0, err
	}
	propose := exec.Command(daemon, "policy", "learn", "--json", "--from-audit", first.id)
	propose.Stderr = inv.Stderr
	text, err := propose.Output()
	var p learned
	if err != nil {
		var own bailey.Error
		if json.Unmarshal(bytes.TrimSpace(text), &own) == nil && own.Code != "" {
			return 0, &own
		}
		return bailey.ExitBailey, nil // it has said why
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return 0, bailey.Errorf(bailey.CodeProtocol, "learn a policy", "", "%w", err)
	}
	for _, note := range p.Notes {
		inv.Say("note: %s", terminal.Printable(note))
	}
	if file == "" {
		fmt.Fprint(inv.Stdout, terminal.PrintableText(p.Document, "\n"))
	} else if err := os.WriteFile(file, []byte(p.Document), 0o644); err != nil {
		return 0, bailey.Errorf(bailey.CodeStorage, "write the policy", "", "%w", err)
	}
	inv.Say("the policy is made of %d acts; the command runs again, in a fresh sandbox, under it", p.Acts)
	second, err := inv.under(*f, cmd, filepath.Join(dir, "proposal.yaml"), p.Document)
	if err != nil {
		return 0, err
	}
	tellEgress(inv, second.egress)
	denied := second.egress == nil || second.egress.Lost || len(second.egress.Denials) > 0 || second.egress.Further > 0
	switch {
	case second.end.Code() != first.end.Code():
		inv.Say("NOT PROVEN: the command under the policy: %s; without it: %s", second.end, first.end)
		return exitUnproven, nil
	case denied:
		inv.Say("NOT PROVEN: something was denied under the policy; the command: %s", second.end)
		return exitUnproven, nil
	case first.end.Code() != 0:
		inv.Say("NOT PROVEN: nothing was denied, but the command failed with and without the policy")
		return exitUnproven, nil
	}
	inv.Say("proven: nothing was denied under the policy; the command: %s", second.end)
	return 0, nil
}

// try is one run of a command that is learned from.
type try struct {
	id     string
	end    bailey.End
	egress *run.Egress
}

// under runs a command under a policy and throws its changes away. What it prints
// goes to stderr, since stdout is for the policy.
func (inv *invocation) under(f runFlags, cmd []string, file, document string) (try, error) {
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		return try{}, bailey.Errorf(bailey.CodeStorage, "learn a policy", "", "%w", err)
	}
	f.Command, f.net.policy, f.discard = cmd, file, true
	f.Streams = terminal.Streams{In: os.Stdin, Out: os.Stderr, Err: os.Stderr}
	var err error
	if f.UID, f.GID, err = parseUser(f.user); err != nil {
		return try{}, err
	}
	ws, err := f.folder()
	if err != nil {
		return try{}, err
	}
	h, done, err := newHost()
	if err != nil {
		return try{}, err
	}
	defer done()
	defer func() { f.Gate.Close() }()
	if err := f.settle(inv, h, ws); err != nil {
		return try{}, err
	}
	if f.Level.OwnRoot() {
		daemon := func() (string, error) { return program("baileyd") }
		if f.Rootfs, err = run.PrepareRoot(context.Background(), h.Folder, daemon, f.image, f.template); err != nil {
			return try{}, err
		}
	}
	out, err := h.Do(context.Background(), f.Request)
	if err != nil {
		return try{}, err
	}
	t := try{out.Run.ID(), out.End, out.Egress}
	err = run.StartError(f.Request, out.End)
	if out.Failed != nil {
		err = out.Failed
	}
	if rerr := out.Run.Remove(); err == nil {
		err = rerr
	}
	out.Run.Close()
	if werr := h.Wait(); err == nil {
		err = werr
	}
	return t, err
}
