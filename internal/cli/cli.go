package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// command is one word after `bailey`.
type command struct {
	name, args, short string
	run               func(*invocation) (int, error)
}

// commands lists them in the order of the help text. It is a function so that
// help may refer to it.
func commands() []command {
	return []command{
		{"run", "[flags] -- CMD...", "run one command in a fresh sandbox over this folder", runCommand},
		{"changes", "[flags] [RUN]", "show what a run did to its workspace", changesCommand},
		{"apply", "[flags] [RUN]", "carry a run's changes over to the host, or take that back", applyCommand},
		{"discard", "[flags] [RUN]", "throw a run's changes away", discardCommand},
		{"trust", "[flags] [FOLDER]", "trust the project's bailey.yaml as it is now", trustCommand},
		{"doctor", "[flags]", "say what works on this host, and how to mend what does not", doctorCommand},
		{"bench", "run [flags]", "measure Bailey beside others on this machine", benchCommand},
		{"version", "", "print the version", versionCommand},
	}
}

// invocation is one call of a command.
type invocation struct {
	command
	args           []string
	flags          *pflag.FlagSet
	json           bool
	stdout, stderr io.Writer
}

// Main runs a command line without its program name and gives the exit code.
func Main(args []string) int {
	collectLate()
	return dispatch(args, os.Stdout, os.Stderr)
}

func dispatch(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		if len(args) > 1 {
			return dispatch([]string{args[1], "--help"}, stdout, stderr)
		}
		usage(stdout)
		return 0
	}
	if args[0] == "--version" {
		args = append([]string{"version"}, args[1:]...)
	}
	list := commands()
	i := slices.IndexFunc(list, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		err := bailey.Errorf(bailey.CodeUsage, "run bailey "+terminal.Printable(args[0]), "`bailey help` lists the commands", "there is no such command")
		fmt.Fprintln(stderr, "bailey:", err)
		return bailey.ExitBailey
	}
	inv := &invocation{command: list[i], args: args[1:], stdout: stdout, stderr: stderr}
	inv.flags = pflag.NewFlagSet(inv.name, pflag.ContinueOnError)
	inv.flags.SetOutput(io.Discard) // errors are shown once, in one form
	inv.flags.SortFlags = false
	inv.flags.SetInterspersed(false)
	code, err := inv.run(inv)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(stdout, "usage: bailey %s %s\n\n%s\n\n%s", inv.name, inv.command.args, inv.short, inv.flags.FlagUsages())
		return 0
	}
	if err != nil {
		inv.fail(err)
		if code == 0 {
			code = bailey.ExitBailey
		}
	}
	return code
}

// parse reads the flags, and gives what is left.
func (inv *invocation) parse() ([]string, error) {
	if err := inv.flags.Parse(inv.args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, inv.flagError(err)
	}
	return inv.flags.Args(), nil
}

// flagError says what is wrong with a flag, in one message with one code.
func (inv *invocation) flagError(err error) error {
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return bailey.Errorf(bailey.CodeUsage, "read the flags of bailey "+inv.name, "`bailey help "+inv.name+"` lists them", "%w", err)
	}
	name := " for --" + value.GetFlag().Name
	var own *bailey.Error
	if errors.As(err, &own) {
		return bailey.Errorf(own.Code, own.What+name, own.Fix, "%s", own.Why)
	}
	return bailey.Errorf(bailey.CodeUsage, "read "+strconv.Quote(value.GetValue())+name, "`bailey help "+inv.name+"` says what it takes", "%w", value.Unwrap())
}

// alone reads the flags of a command that takes nothing else.
func (inv *invocation) alone() error {
	args, err := inv.parse()
	if err == nil && len(args) > 0 {
		err = bailey.Errorf(bailey.CodeUsage, "run bailey "+inv.name, "leave it out", "it takes no argument, and %q is one", args[0])
	}
	return err
}

// explain gives an error in the form that people and programs read.
func (inv *invocation) explain(err error) *bailey.Error {
	var be *bailey.Error
	if !errors.As(err, &be) {
		be = bailey.Errorf(bailey.CodeInternal, "finish bailey "+inv.name, "please report it with the output of `bailey doctor --report`", "%w", err)
	}
	return be
}

// fail shows an error.
func (inv *invocation) fail(err error) {
	be := inv.explain(err)
	if inv.json {
		b, _ := json.Marshal(struct {
			Error *bailey.Error `json:"error"`
		}{be})
		fmt.Fprintf(inv.stdout, "%s\n", b)
		return
	}
	fmt.Fprintln(inv.stderr, "bailey:", terminal.Printable(be.Error()))
}

// say tells a person something that is not the command's result.
func (inv *invocation) say(format string, args ...any) {
	fmt.Fprintf(inv.stderr, "bailey: "+format+"\n", args...)
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Bailey runs an agent's commands behind a boundary.\n\nusage: bailey COMMAND [flags]\n\n")
	width := 0
	list := commands()
	for _, c := range list {
		width = max(width, len(c.name)+1+len(c.args))
	}
	for _, c := range list {
		fmt.Fprintf(w, "  %-*s  %s\n", width, strings.TrimSpace(c.name+" "+c.args), c.short)
	}
	fmt.Fprint(w, "\n`bailey help COMMAND` lists a command's flags.\n")
}
