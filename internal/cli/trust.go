package cli

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/project"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// trustCommand lets a person trust the project's file as it is now.
func trustCommand(inv *invocation) (int, error) {
	var hash string
	var revoke bool
	inv.flags.SetInterspersed(true)
	inv.flags.StringVar(&hash, "hash", "", "trust without a question, if the file has this SHA-256")
	inv.flags.BoolVar(&revoke, "revoke", false, "trust it no longer, in any form")
	args, err := inv.parse()
	if err != nil {
		return 0, err
	}
	dir := "."
	switch len(args) {
	case 0:
	case 1:
		dir = args[0]
	default:
		return 0, bailey.Errorf(bailey.CodeUsage, "trust a project's file", "call it for one after the other", "%d folders were named", len(args))
	}
	ws, err := filepath.Abs(dir)
	if err == nil {
		ws, err = filepath.EvalSymlinks(ws)
	}
	if err != nil {
		return 0, bailey.Errorf(bailey.CodeUsage, "trust a project's file", "name a folder that exists", "%w", err)
	}
	home, err := folder.Open()
	if err != nil {
		return 0, err
	}
	if _, err := home.Trust(); err != nil {
		return 0, err
	}
	store := trustStore(home.Path())
	if revoke {
		n, err := store.Untrust(filepath.Join(ws, project.FileName))
		if err == nil {
			forms := "%d forms of %s are trusted no longer\n"
			if n == 1 {
				forms = "%d form of %s is trusted no longer\n"
			}
			fmt.Fprintf(inv.stdout, forms, n, terminal.Printable(filepath.Join(ws, project.FileName)))
		}
		return 0, err
	}
	file, err := project.Open(ws)
	if err != nil {
		return 0, err
	}
	if file == nil {
		return 0, bailey.Errorf(bailey.CodeNotFound, "trust "+project.FileName, "change to the project's folder", "there is none in %s", ws)
	}
	if _, err := project.Parse(file.Data, ws); err != nil {
		return 0, err
	}
	if hash == "" {
		if ok, err := confirm(inv, file); err != nil || !ok {
			return 0, err
		}
	} else if !strings.EqualFold(hash, file.Hash) {
		// The right hash is not told: who copies it from here has not read the file.
		return 0, bailey.Errorf(bailey.CodeUntrusted, "trust "+project.FileName, "read the file, and give the hash of what you have read (sha256sum)", "it does not have that SHA-256")
	}
	if err := store.Trust(file.Path, file.Hash); err != nil {
		return 0, err
	}
	fmt.Fprintf(inv.stdout, "trusted %s with SHA-256 %s\n", terminal.Printable(file.Path), file.Hash)
	return 0, nil
}

// confirm shows the file, as it is and not as a terminal would obey it, and asks.
func confirm(inv *invocation, file *project.File) (bool, error) {
	for line := range strings.Lines(string(file.Data)) {
		fmt.Fprintf(inv.stdout, "  %s\n", terminal.Printable(strings.TrimRight(line, "\n")))
	}
	fmt.Fprintf(inv.stdout, "SHA-256 %s\n", file.Hash)
	if !terminal.Is(os.Stdin) {
		return false, bailey.Errorf(bailey.CodeUntrusted, "trust "+project.FileName, "give the hash of what you read with --hash", "there is no terminal to ask on")
	}
	fmt.Fprint(inv.stdout, "trust it? [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(answer), "y") || strings.EqualFold(strings.TrimSpace(answer), "yes"), nil
}
