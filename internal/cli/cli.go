package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/bailey-sandbox/bailey/internal/cli/command"
)

// invocation is one call of a command.
type invocation struct{ *command.Invocation }

// commands lists them in the order of the help text. It is a function so that
// help may refer to it.
func commands() []command.Command {
	list := []command.Command{
		here("run", "[flags] -- CMD...", "run one command in a fresh sandbox over this folder", runCommand),
		here("changes", "[flags] [RUN]", "show what a run did to its workspace", changesCommand),
		here("apply", "[flags] [RUN]", "carry a run's changes over to the host, or take that back", applyCommand),
		here("discard", "[flags] [RUN]", "throw a run's changes away", discardCommand),
		here("trust", "[flags] [FOLDER]", "trust the project's bailey.yaml as it is now", trustCommand),
		here("policy", "check|explain|diff|test|learn|profiles", "what a policy allows, and why", policyCommand),
		here("secret", "set|ls|revoke|rm", "credentials that the gate puts in and no sandbox sees", delegateCommand),
		here("approvals", "ls|show|approve|deny|watch", "answer what a sandbox asks for", approvalsCommand),
		here("audit", "show|follow|verify|export", "read the log of all that was decided and done", delegateCommand),
		here("doctor", "[flags]", "say what works on this host, and how to mend what does not", doctorCommand),
		here("bench", "run|gate|lifecycle [flags]", "measure Bailey beside others on this machine", benchCommand),
		here("serve", "[flags]", "run the daemon in the foreground, or print its systemd unit", serveCommand),
		here("completion", "bash|zsh|fish", "a script that completes commands and flags in a shell", completionCommand),
		here("version", "", "print the version", versionCommand),
	}
	for _, c := range command.Staying {
		list = append(list, here(c.Name, c.Args, c.Short, stayingCommand))
	}
	return list
}

// here makes a command of this package one of the table.
func here(name, args, short string, run func(*invocation) (int, error)) command.Command {
	return command.Command{Name: name, Args: args, Short: short, Run: func(inv *command.Invocation) (int, error) { return run(&invocation{inv}) }}
}

// Main runs a command line without its program name and gives the exit code.
func Main(args []string) int {
	collectLate()
	return dispatch(args, os.Stdout, os.Stderr)
}

func dispatch(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "__complete" {
		return complete(args[1:], stdout)
	}
	if len(args) > 0 && args[0] == "--version" {
		args = append([]string{"version"}, args[1:]...)
	}
	return command.Dispatch(commands(), args, stdout, stderr, usage)
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Bailey runs an agent's commands behind a boundary.\n\nusage: bailey COMMAND [flags]\n\n")
	list := commands()
	command.List(w, list[:len(list)-len(command.Staying)])
	fmt.Fprint(w, "\nSandboxes that stay:\n\n")
	command.List(w, command.Staying)
	fmt.Fprint(w, "\n`bailey help COMMAND` lists a command's flags.\n")
}
