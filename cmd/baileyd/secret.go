package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

const secretUsage = `Usage: bailey secret set [flags] NAME
       bailey secret ls [--json]
       bailey secret revoke NAME
       bailey secret rm NAME

Keeps credentials sealed, for the gate to put into requests. A sandbox never
sees them. set reads the value from standard input, without echo on a terminal,
and takes one final line end off.

  set     keeps a value; one that was there is replaced, and for 30 days still
          taken out of answers
  ls      lists names and what may be told of them, never values
  revoke  makes a secret unusable at once, and goes on taking it out of answers
  rm      removes a secret with all its versions

`

func secretCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) < 1 {
		fmt.Fprint(stderr, secretUsage)
		return bailey.ExitBailey
	}
	flags := pflag.NewFlagSet("bailey secret", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	fromEnv := flags.String("from-env", "", "set: take the value from this environment variable")
	fromFile := flags.String("from-file", "", "set: take the value from this file")
	command := flags.String("command", "", "set: keep a command for sh instead, whose output is the value each time it is needed")
	asJSON := flags.Bool("json", false, "print JSON")
	err := flags.Parse(args[1:])
	if errors.Is(err, pflag.ErrHelp) || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		fmt.Fprint(stdout, secretUsage+flags.FlagUsages())
		return 0
	}
	usage := func(format string, args ...any) int {
		return fail(stderr, *asJSON, bailey.Errorf(bailey.CodeUsage, "understand the command line", "see bailey secret --help", format, args...))
	}
	if err != nil {
		return usage("%w", err)
	}
	names, takes := 1, "one name"
	if args[0] == "ls" {
		names, takes = 0, "no name"
	}
	if flags.NArg() != names {
		return usage("bailey secret %s takes %s, and has %d arguments; a value is never one, where others could see it", args[0], takes, flags.NArg())
	}
	home, err := folder.Open()
	if err != nil {
		return fail(stderr, *asJSON, err)
	}
	store := secrets.Open(home.Path())
	name := flags.Arg(0)
	switch args[0] {
	case "set":
		var info secrets.Info
		if info, err = setSecret(ctx, store, name, *fromEnv, *fromFile, *command, stderr); err == nil {
			err = told(stdout, *asJSON, info, fmt.Sprintf("%s is kept, version %d", info.Name, info.Version))
		}
	case "ls":
		err = listSecrets(store, stdout, *asJSON)
	case "revoke":
		if err = store.Revoke(name); err == nil {
			err = told(stdout, *asJSON, map[string]string{"revoked": name}, name+" is revoked")
		}
	case "rm":
		if err = store.Remove(name); err == nil {
			err = told(stdout, *asJSON, map[string]string{"removed": name}, name+" is removed")
		}
	default:
		return usage("there is no bailey secret %s", args[0])
	}
	if err != nil {
		return fail(stderr, *asJSON, err)
	}
	if w := store.KeyWarning(); w != "" {
		fmt.Fprintln(stderr, "bailey: warning:", w)
	}
	return 0
}

func told(w io.Writer, asJSON bool, what any, line string) error {
	if asJSON {
		return json.NewEncoder(w).Encode(what)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

func listSecrets(store *secrets.Store, w io.Writer, asJSON bool) error {
	all, err := store.List()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(all)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tVERSION\tUPDATED\tSOURCE\tPREFIX\tSTATE")
	for _, i := range all {
		state := "in force"
		if i.Revoked {
			state = "revoked"
		}
		prefix := i.Prefix
		if prefix == "" {
			prefix = "-"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", i.Name, i.Version, i.Updated.Format("2006-01-02 15:04"), i.Source, prefix, state)
	}
	return t.Flush()
}

// setSecret finds the value where the flags say, and keeps it.
func setSecret(ctx context.Context, store *secrets.Store, name, fromEnv, fromFile, command string, prompts io.Writer) (secrets.Info, error) {
	const what = "keep the secret"
	if err := secrets.CheckName(name); err != nil {
		return secrets.Info{}, err
	}
	sources := 0
	for _, s := range []string{fromEnv, fromFile, command} {
		if s != "" {
			sources++
		}
	}
	if sources > 1 {
		return secrets.Info{}, bailey.Errorf(bailey.CodeUsage, what, "give one of them", "--from-env, --from-file and --command exclude each other")
	}
	var value []byte
	from := secrets.Stdin
	switch {
	case command != "":
		from, value = secrets.Command, []byte(command)
	case fromEnv != "":
		v, ok := os.LookupEnv(fromEnv)
		if !ok {
			return secrets.Info{}, bailey.Errorf(bailey.CodeUsage, what, "export it first", "the variable %s is not set", fromEnv)
		}
		from, value = secrets.Environment, []byte(v)
	case fromFile != "":
		f, err := os.Open(fromFile)
		if err != nil {
			return secrets.Info{}, bailey.Errorf(bailey.CodeUsage, what, "", "%w", err)
		}
		defer f.Close()
		if value, err = readValue(f); err != nil {
			return secrets.Info{}, bailey.Errorf(bailey.CodeUsage, what, "", "%w", err)
		}
		from, value = secrets.File, secrets.TrimFinalNewline(value)
	default:
		var err error
		if terminal.Is(os.Stdin) {
			value, err = prompt(ctx, os.Stdin, prompts, name)
		} else {
			value, err = readValue(os.Stdin)
		}
		if err != nil {
			return secrets.Info{}, bailey.Errorf(bailey.CodeUsage, what, "", "the value could not be read: %w", err)
		}
		value = secrets.TrimFinalNewline(value)
	}
	defer clear(value)
	return store.Set(name, from, value)
}

// readValue reads a little more than a value may have, so that too long a one
// is refused and not cut.
func readValue(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, secrets.MaxValue+3))
}
