package client

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// ignored are the paths of a folder that its .gitignore files name, as git says.
type ignored map[string]bool

// readIgnored asks git. Nothing that the folder's own configuration names is run.
func readIgnored(root string) (ignored, error) {
	what := "find out what .gitignore names in " + root
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "install git, or leave --respect-gitignore out", "%w", err)
	}
	cmd := exec.Command(git, "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "-C", root,
		"ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, bailey.Errorf(bailey.CodeUsage, what, "leave --respect-gitignore out", "%w", err)
	}
	list := ignored{}
	for name := range bytes.SplitSeq(out, []byte{0}) {
		if len(name) > 0 {
			list[strings.TrimSuffix(string(name), "/")] = true
		}
	}
	return list, nil
}
