package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/cli/command"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// does is what each of command.Staying does. It is a function so that help may
// refer to it.
func does() map[string]func(*invocation) (int, error) {
	return map[string]func(*invocation) (int, error){
		"create":     createCommand,
		"ls":         listCommand,
		"show":       showCommand,
		"exec":       execCommand,
		"shell":      shellCommand,
		"logs":       logsCommand,
		"cp":         copyCommand,
		"files":      filesCommand,
		"stats":      statsCommand,
		"port":       portCommand,
		"mount":      mountCommand,
		"pause":      pauseCommand,
		"resume":     resumeCommand,
		"promote":    promoteCommand,
		"extend":     extendCommand,
		"hold":       holdCommand,
		"rm":         removeCommand,
		"snapshot":   snapshotCommand,
		"fork":       forkCommand,
		"checkpoint": checkpointCommand,
		"diff":       diffCommand,
		"undo":       undoCommand,
		"bisect":     bisectCommand,
		"template":   templateCommand,
		"image":      imageCommand,
		"volume":     volumeCommand,
		"session":    sessionCommand,
		"events":     eventsCommand,
		"key":        keyCommand,
		"webhook":    webhookCommand,
		"gc":         gcCommand,
		"info":       infoCommand,
		"mcp":        mcpCommand,
		"tool":       toolCommand,
	}
}

// commands lists the commands in the order of the help text.
func commands() (list []command.Command) {
	all := does()
	for _, c := range command.Staying {
		c.Run = here(all[c.Name])
		list = append(list, c)
	}
	return list
}

// invocation is one call of a command that speaks to the daemon.
type invocation struct {
	*command.Invocation
	ctx context.Context
}

// here makes what a command does one of the table.
func here(run func(*invocation) (int, error)) func(*command.Invocation) (int, error) {
	return func(c *command.Invocation) (int, error) {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
		defer stop()
		c.Flags.BoolVar(&c.JSON, "json", false, "JSON in place of text")
		code, err := run(&invocation{c, ctx})
		if err != nil && ctx.Err() != nil && bailey.CodeOf(err) == bailey.CodeInternal {
			err = bailey.Errorf(bailey.CodeBusy, "finish bailey "+c.Name, "call it again", "it was interrupted")
		}
		return code, err
	}
}

// Main runs a command line without its program name and gives the exit code.
func Main(args []string) int {
	return command.Dispatch(commands(), args, os.Stdout, os.Stderr, usage)
}

func usage(w io.Writer) {
	fmt.Fprint(w, "The commands of bailey that speak to the daemon.\n\n")
	command.List(w, command.Staying)
}

// verbs are the second words of a command such as image.
type verbs map[string]func(*invocation) error

// second runs what the second word names.
func (inv *invocation) second(list verbs) (int, error) {
	what := "run bailey " + inv.Name
	fix := "`bailey help` lists what there is: " + inv.Command.Args
	if len(inv.Args) == 0 {
		return 0, bailey.Errorf(bailey.CodeUsage, what, fix, "a second word says what to do")
	}
	f := list[inv.Args[0]]
	if f == nil && (inv.Args[0] == "--help" || inv.Args[0] == "-h") {
		return 0, inv.helpOf(list)
	}
	if f == nil {
		return 0, bailey.Errorf(bailey.CodeUsage, what+" "+terminal.Printable(inv.Args[0]), fix, "there is no such command")
	}
	inv.Name += " " + inv.Args[0]
	inv.Args = inv.Args[1:]
	return 0, f(inv)
}

// helpOf shows the help of all second words.
func (inv *invocation) helpOf(list verbs) error {
	fmt.Fprintf(inv.Stdout, "usage: bailey %s %s\n\n%s\n", inv.Name, inv.Command.Args, inv.Short)
	for _, verb := range slices.Sorted(maps.Keys(list)) {
		one := &invocation{command.New(command.Command{Name: inv.Name + " " + verb}, []string{"--help"}, inv.Stdout, inv.Stderr), inv.ctx}
		one.Flags.BoolVar(&one.JSON, "json", false, "JSON in place of text")
		if err := list[verb](one); !errors.Is(err, pflag.ErrHelp) {
			return err
		}
		fmt.Fprintf(inv.Stdout, "\nbailey %s\n%s", one.Name, one.Flags.FlagUsages())
	}
	return nil
}

// some reads the flags, which may stand anywhere before a --, and gives the
// arguments: at least min and at most max, any number with -1.
func (inv *invocation) some(min, max int, names string) ([]string, error) {
	inv.Flags.SetInterspersed(true)
	args, err := inv.Parse()
	if err != nil {
		return nil, err
	}
	if len(args) < min || max >= 0 && len(args) > max {
		return nil, bailey.Errorf(bailey.CodeUsage, "run bailey "+inv.Name, "call it as bailey "+inv.Name+" "+names, "it was given %d arguments", len(args))
	}
	return args, nil
}

// split gives what stands before and behind the --.
func (inv *invocation) split() (before, behind []string, err error) {
	inv.Flags.SetInterspersed(true)
	args, err := inv.Parse()
	if err != nil {
		return nil, nil, err
	}
	if n := inv.Flags.ArgsLenAtDash(); n >= 0 {
		return args[:n], args[n:], nil
	}
	return args, nil, nil
}

// one is some for a command that takes one sandbox, and gives its handle.
func (inv *invocation) one(names string) (*client.Sandbox, error) {
	args, err := inv.some(1, 1, names)
	if err != nil {
		return nil, err
	}
	c, err := inv.connect()
	if err != nil {
		return nil, err
	}
	return c.Sandbox(args[0]), nil
}

// print shows v as JSON when that was asked for, and text otherwise.
func (inv *invocation) print(v any, text func(w io.Writer)) error {
	if !inv.JSON {
		text(inv.Stdout)
		return nil
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(inv.Stdout, "%s\n", b)
	return err
}

// line writes one JSON object of a stream.
func (inv *invocation) line(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(inv.Stdout, "%s\n", b)
	}
	return err
}

// pairs reads NAME=VALUE flags.
func pairs(list []string, flag string) (map[string]string, error) {
	m := map[string]string{}
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return nil, bailey.Errorf(bailey.CodeUsage, "read --"+flag+" "+kv, "write NAME=VALUE", "there is no name or no value")
		}
		m[name] = value
	}
	return m, nil
}
