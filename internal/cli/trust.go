package cli

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/project"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// trustCommand lets a person trust the project's file as it is now.
func trustCommand(inv *invocation) (int, error) {
	var hashes []string
	var revoke bool
	inv.Flags.SetInterspersed(true)
	inv.Flags.StringArrayVar(&hashes, "hash", nil, "trust without a question, if the file has this SHA-256; once more for a policy that it names")
	inv.Flags.BoolVar(&revoke, "revoke", false, "trust it no longer, in any form")
	args, err := inv.Parse()
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
			fmt.Fprintf(inv.Stdout, forms, n, terminal.Printable(filepath.Join(ws, project.FileName)))
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
	settings, err := project.Parse(file.Data, ws)
	if err != nil {
		return 0, err
	}
	files := []*project.File{file}
	if settings.Policy != nil { // it comes first: the file that names it is then trusted with it
		policy, err := project.OpenPolicy(ws, settings.Policy)
		if err != nil {
			return 0, err
		}
		files = []*project.File{policy, file}
	}
	if len(hashes) == 0 {
		if ok, err := confirm(inv, files); err != nil || !ok {
			return 0, err
		}
	} else if err := haveHashes(files, hashes); err != nil {
		return 0, err
	}
	for _, f := range files {
		if err := store.Trust(f.Path, f.Hash); err != nil {
			return 0, err
		}
	}
	for _, f := range files {
		fmt.Fprintf(inv.Stdout, "trusted %s with SHA-256 %s\n", terminal.Printable(f.Path), f.Hash)
	}
	return 0, nil
}

// haveHashes says whether a person has read all files, and nothing else.
func haveHashes(files []*project.File, hashes []string) error {
	for _, f := range files {
		if !slices.ContainsFunc(hashes, func(h string) bool { return strings.EqualFold(h, f.Hash) }) {
			// The right hash is not told: who copies it from here has not read the file.
			return bailey.Errorf(bailey.CodeUntrusted, "trust "+project.FileName, "read it, and the policy that it names, and give the hash of each that you have read (sha256sum)",
				"%s does not have that SHA-256", f.Path)
		}
	}
	return nil
}

// confirm shows the files, as they are and not as a terminal would obey them, and
// asks.
func confirm(inv *invocation, files []*project.File) (bool, error) {
	for _, file := range files {
		fmt.Fprintf(inv.Stdout, "%s:\n", terminal.Printable(file.Path))
		for line := range strings.Lines(string(file.Data)) {
			fmt.Fprintf(inv.Stdout, "  %s\n", terminal.Printable(strings.TrimRight(line, "\n")))
		}
		fmt.Fprintf(inv.Stdout, "SHA-256 %s\n", file.Hash)
	}
	if !terminal.Is(os.Stdin) {
		return false, bailey.Errorf(bailey.CodeUntrusted, "trust "+project.FileName, "give the hash of what you read with --hash", "there is no terminal to ask on")
	}
	fmt.Fprint(inv.Stdout, "trust it? [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(answer), "y") || strings.EqualFold(strings.TrimSpace(answer), "yes"), nil
}
