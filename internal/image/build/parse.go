package build

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/bailey-sandbox/bailey"
)

// Bounds of a Dockerfile.
const (
	maxDockerfile   = 1 << 20 // bytes
	maxInstructions = 2000
)

// file is a Dockerfile that has been read.
type file struct {
	name   string
	escape rune
	stages []instructions.Stage
	args   []instructions.ArgCommand // before the first stage
}

// parse reads a Dockerfile. What buildkit's parser cannot cope with is an error of
// the file, not of ours.
func parse(name string, text []byte) (f *file, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, bailey.Errorf(bailey.CodeUsage, "read "+name, "", "it cannot be parsed: %v", p)
		}
	}()
	if len(text) > maxDockerfile {
		return nil, bailey.Errorf(bailey.CodeUsage, "read "+name, "", "it has more than %d bytes", maxDockerfile)
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, malformed(name, err)
	}
	if len(tree.AST.Children) > maxInstructions {
		return nil, bailey.Errorf(bailey.CodeUsage, "read "+name, "", "it has more than %d instructions", maxInstructions)
	}
	f = &file{name: name, escape: tree.EscapeToken}
	if f.stages, f.args, err = instructions.Parse(tree.AST, nil); err != nil {
		return nil, malformed(name, err)
	}
	if len(f.stages) == 0 {
		return nil, bailey.Errorf(bailey.CodeUsage, "read "+name, "begin it with FROM", "there is nothing to build in it")
	}
	return f, nil
}

// parseTrigger reads one instruction of an ONBUILD.
func parseTrigger(text string) (c instructions.Command, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be parsed: %v", p)
		}
	}()
	tree, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	if len(tree.AST.Children) != 1 {
		return nil, errors.New("it is not one instruction")
	}
	c, err = instructions.ParseCommand(tree.AST.Children[0])
	if err == nil {
		switch c.(type) {
		case *instructions.OnbuildCommand:
			err = errors.New("it is an ONBUILD itself")
		}
	}
	return c, err
}

func malformed(name string, err error) error {
	var at *parser.LocationError
	where := name
	if errors.As(err, &at) && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
		where = fmt.Sprintf("%s:%d", name, at.Locations[0][0].Start.Line)
	}
	return bailey.Errorf(bailey.CodeUsage, "read "+where, "", "%w", err)
}

// line gives the place of an instruction.
func line(ranges []parser.Range) int {
	if len(ranges) == 0 {
		return 0
	}
	return ranges[0].Start.Line
}

// expander puts variables into words.
func (f *file) expander(env []string) instructions.SingleWordExpander {
	lex := shell.NewLex(f.escape)
	get := shell.EnvsFromSlice(env)
	return func(word string) (string, error) {
		s, _, err := lex.ProcessWord(word, get)
		return s, err
	}
}

func (f *file) words(env []string, word string) ([]string, error) {
	return shell.NewLex(f.escape).ProcessWords(word, shell.EnvsFromSlice(env))
}
