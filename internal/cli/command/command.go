package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// Command is one word after `bailey`.
type Command struct {
	Name, Args, Short string
	Run               func(*Invocation) (int, error)
}

// Invocation is one call of a command.
type Invocation struct {
	Command
	Args           []string // behind the command's name
	Flags          *pflag.FlagSet
	JSON           bool
	Stdout, Stderr io.Writer
}

// Dispatch runs the command that args begin with and gives the exit code. usage
// writes the help text.
func Dispatch(list []Command, args []string, stdout, stderr io.Writer, usage func(io.Writer)) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		if len(args) > 1 {
			return Dispatch(list, append(slices.Clone(args[1:]), "--help"), stdout, stderr, usage)
		}
		usage(stdout)
		return 0
	}
	i := slices.IndexFunc(list, func(c Command) bool { return c.Name == args[0] })
	if i < 0 {
		err := bailey.Errorf(bailey.CodeUsage, "run bailey "+terminal.Printable(args[0]), "`bailey help` lists the commands", "there is no such command")
		fmt.Fprintln(stderr, "bailey:", err)
		return bailey.ExitBailey
	}
	inv := New(list[i], args[1:], stdout, stderr)
	code, err := inv.Run(inv)
	if errors.Is(err, pflag.ErrHelp) {
		inv.Help()
		return 0
	}
	if err != nil {
		inv.Fail(err)
		if code == 0 {
			code = bailey.ExitBailey
		}
	}
	return code
}

// New makes an Invocation without flags.
func New(c Command, args []string, stdout, stderr io.Writer) *Invocation {
	inv := &Invocation{Command: c, Args: args, Stdout: stdout, Stderr: stderr}
	inv.Flags = pflag.NewFlagSet(inv.Name, pflag.ContinueOnError)
	inv.Flags.SetOutput(io.Discard) // errors are shown once, in one form
	inv.Flags.SortFlags = false
	inv.Flags.SetInterspersed(false)
	return inv
}

// Help shows how the command is called, with the flags that have been defined.
func (inv *Invocation) Help() {
	fmt.Fprintf(inv.Stdout, "usage: bailey %s %s\n\n%s\n\n%s", inv.Name, inv.Command.Args, inv.Short, inv.Flags.FlagUsages())
}

// Parse reads the flags, and gives what is left.
func (inv *Invocation) Parse() ([]string, error) {
	if err := inv.Flags.Parse(inv.Args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, inv.FlagError(err)
	}
	return inv.Flags.Args(), nil
}

// FlagError says what is wrong with a flag, in one message with one code.
func (inv *Invocation) FlagError(err error) error {
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return bailey.Errorf(bailey.CodeUsage, "read the flags of bailey "+inv.Name, "`bailey help "+inv.Name+"` lists them", "%w", err)
	}
	name := " for --" + value.GetFlag().Name
	var own *bailey.Error
	if errors.As(err, &own) {
		return bailey.Errorf(own.Code, own.What+name, own.Fix, "%s", own.Why)
	}
	return bailey.Errorf(bailey.CodeUsage, "read "+strconv.Quote(value.GetValue())+name, "`bailey help "+inv.Name+"` says what it takes", "%w", value.Unwrap())
}

// Alone reads the flags of a command that takes nothing else.
func (inv *Invocation) Alone() error {
	args, err := inv.Parse()
	if err == nil && len(args) > 0 {
		err = bailey.Errorf(bailey.CodeUsage, "run bailey "+inv.Name, "leave it out", "it takes no argument, and %q is one", args[0])
	}
	return err
}

// Explain gives an error in the form that people and programs read.
func (inv *Invocation) Explain(err error) *bailey.Error {
	var be *bailey.Error
	if !errors.As(err, &be) {
		be = bailey.Errorf(bailey.CodeInternal, "finish bailey "+inv.Name, "please report it with the output of `bailey doctor --report`", "%w", err)
	}
	return be
}

// Fail shows an error.
func (inv *Invocation) Fail(err error) {
	be := inv.Explain(err)
	if inv.JSON {
		b, _ := json.Marshal(struct {
			Error *bailey.Error `json:"error"`
		}{be})
		fmt.Fprintf(inv.Stdout, "%s\n", b)
		return
	}
	fmt.Fprintln(inv.Stderr, "bailey:", terminal.Printable(be.Error()))
}

// Say tells a person something that is not the command's result.
func (inv *Invocation) Say(format string, args ...any) {
	fmt.Fprintf(inv.Stderr, "bailey: "+format+"\n", args...)
}

// Staying are the commands that speak to the daemon, in the order of the help text,
// without what they do: package internal/cli/client has that.
var Staying = []Command{
	{Name: "create", Args: "[flags] [-- CMD...]", Short: "make a sandbox that stays"},
	{Name: "ls", Args: "[flags]", Short: "list sandboxes"},
	{Name: "show", Args: "SANDBOX", Short: "all that is known about a sandbox"},
	{Name: "exec", Args: "[flags] SANDBOX -- CMD...", Short: "run a command in a sandbox"},
	{Name: "shell", Args: "[flags] SANDBOX", Short: "a shell in a sandbox"},
	{Name: "logs", Args: "[flags] SANDBOX [EXEC]", Short: "a command's output, from any offset"},
	{Name: "cp", Args: "[flags] SOURCE TARGET", Short: "copy files into or out of a sandbox: SANDBOX:PATH"},
	{Name: "files", Args: "ls|stat|cat|write|mkdir|mv|rm|watch|search SANDBOX PATH", Short: "look at and change a sandbox's files"},
	{Name: "stats", Args: "SANDBOX", Short: "what a sandbox uses"},
	{Name: "port", Args: "SANDBOX [LOCAL:]PORT", Short: "reach a port of a sandbox from this machine"},
	{Name: "mount", Args: "add SANDBOX SOURCE[:TARGET][:ro|rw]", Short: "show another folder in a sandbox that runs"},
	{Name: "pause", Args: "[--to-disk [--files-only]] SANDBOX...", Short: "freeze a sandbox, or put it on disk"},
	{Name: "resume", Args: "SANDBOX...", Short: "let a paused or stopped sandbox go on"},
	{Name: "promote", Args: "SANDBOX LEVEL", Short: "move a sandbox to a stronger isolation level"},
	{Name: "extend", Args: "[flags] SANDBOX", Short: "change how long a sandbox lives"},
	{Name: "hold", Args: "[flags] SANDBOX", Short: "keep a sandbox awake"},
	{Name: "rm", Args: "SANDBOX...", Short: "end a sandbox and remove its files"},
	{Name: "snapshot", Args: "create|ls|show|rm|export|import", Short: "the frozen state of a sandbox's files"},
	{Name: "fork", Args: "[flags] SANDBOX", Short: "new sandboxes that start as one is now"},
	{Name: "checkpoint", Args: "[flags] SANDBOX", Short: "a cheap snapshot, to compare with and go back to"},
	{Name: "diff", Args: "[flags] SANDBOX", Short: "what changed in a sandbox"},
	{Name: "undo", Args: "[flags] SANDBOX", Short: "take a sandbox's files back to a checkpoint"},
	{Name: "bisect", Args: "--good CHECKPOINT SANDBOX -- CMD...", Short: "find the first checkpoint at which a command fails"},
	{Name: "template", Args: "build|ls|rm|export", Short: "root file systems with a way to start"},
	{Name: "image", Args: "pull|ls|rm", Short: "images of registries"},
	{Name: "volume", Args: "create|ls|rm", Short: "storage that outlives sandboxes"},
	{Name: "session", Args: "new|ls|show|events|execute|note|close", Short: "agent tasks, which outlive their sandboxes"},
	{Name: "events", Args: "[--from SEQ]", Short: "follow what happens"},
	{Name: "key", Args: "create|ls|rm", Short: "API keys"},
	{Name: "webhook", Args: "create|ls|rm", Short: "who is told of events"},
	{Name: "gc", Args: "[--dry-run]", Short: "remove what belongs to nobody"},
	{Name: "info", Args: "", Short: "what the daemon is and can do"},
	{Name: "mcp", Args: "[flags]", Short: "tools for an agent that speaks MCP, over standard input and output"},
	{Name: "tool", Args: "[flags] anthropic|openai [CALL]", Short: "the tools that a vendor's models know, as JSON in, JSON out"},
}

// List writes a table of commands for people.
func List(w io.Writer, list []Command) {
	width := 0
	for _, c := range list {
		width = max(width, len(c.Name)+1+len(c.Args))
	}
	for _, c := range list {
		fmt.Fprintf(w, "  %-*s  %s\n", width, strings.TrimSpace(c.Name+" "+c.Args), c.Short)
	}
}
