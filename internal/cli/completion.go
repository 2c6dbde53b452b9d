package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cli/command"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// scripts ask `bailey __complete WORD...` what the last word may become, so that
// they never are older than the program.
var scripts = map[string]string{
	"bash": `_bailey() {
	local IFS=$'\n'
	COMPREPLY=($(bailey __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _bailey bailey
`,
	"zsh": `#compdef bailey
_bailey() {
	local -a found
	found=("${(@f)$(bailey __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	[[ -n "$found" ]] && compadd -- "${found[@]}" || _files
}
compdef _bailey bailey
`,
	"fish": `complete -c bailey -a '(bailey __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

func completionCommand(inv *invocation) (int, error) {
	args, err := inv.Parse()
	if err != nil {
		return 0, err
	}
	if len(args) != 1 || scripts[args[0]] == "" {
		return 0, bailey.Errorf(bailey.CodeUsage, "write a completion script", "name bash, zsh or fish", "there is one for these shells only")
	}
	_, err = fmt.Fprint(inv.Stdout, scripts[args[0]])
	return 0, err
}

// complete writes what the last of the words may become, one to a line.
func complete(words []string, out io.Writer) int {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var found []string
	switch {
	case len(words) == 1:
		for _, c := range commands() {
			found = append(found, c.Name)
		}
	case strings.HasPrefix(last, "-"):
		found = flagsOf(words[0])
	default:
		found = argumentsOf(words)
	}
	slices.Sort(found)
	for _, f := range slices.Compact(found) {
		if strings.HasPrefix(f, last) {
			fmt.Fprintln(out, f)
		}
	}
	return 0
}

// argumentsOf gives the second words of a command, as its line in the table has
// them, and the sandboxes where it takes one.
func argumentsOf(words []string) (found []string) {
	for _, c := range commands() {
		if c.Name != words[0] {
			continue
		}
		first, _, _ := strings.Cut(c.Args, " ")
		if strings.Contains(first, "|") {
			if len(words) == 2 {
				return strings.Split(first, "|")
			}
			return sandboxes()
		}
	}
	if slices.ContainsFunc(command.Staying, func(c command.Command) bool { return c.Name == words[0] }) {
		return sandboxes()
	}
	return nil
}

var flagName = regexp.MustCompile(`(?m)^\s+(?:-\w, )?(--[a-z-]+)`)

// flagsOf reads the flags out of a command's help.
func flagsOf(name string) (found []string) {
	var help bytes.Buffer
	if slices.ContainsFunc(command.Staying, func(c command.Command) bool { return c.Name == name }) {
		if client, err := program("bailey-client"); err == nil {
			cmd := exec.Command(client, name, "--help")
			cmd.Stdout = &help
			_ = cmd.Run() // no help is no flags
		}
	} else {
		dispatch([]string{name, "--help"}, &help, io.Discard)
	}
	for _, m := range flagName.FindAllStringSubmatch(help.String(), -1) {
		found = append(found, m[1])
	}
	return found
}

// sandboxes gives the ids of those that exist, if a daemon is there: none is
// started for the sake of a completion.
func sandboxes() []string {
	home, err := folder.DefaultPath()
	if err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(home, "bailey.sock")); err != nil {
		return nil
	}
	client, err := program("bailey-client")
	if err != nil {
		return nil
	}
	out, err := exec.Command(client, "ls", "--quiet").Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}
