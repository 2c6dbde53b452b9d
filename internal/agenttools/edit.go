package agenttools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
)

// fileMost bounds a file that is viewed or changed, in bytes.
const fileMost = 8 << 20

// editIn is the text editor's input.
type editIn struct {
	Command string  `json:"command"`
	Path    string  `json:"path"`
	Text    *string `json:"file_text"`
	Old     *string `json:"old_str"`
	New     *string `json:"new_str"`
	Line    *int    `json:"insert_line"`
	Insert  *string `json:"insert_text"`
	Range   []int   `json:"view_range"`
}

// edit does what the text editor's input says.
func edit(ctx context.Context, f *client.Files, raw json.RawMessage) (string, error) {
	var in editIn
	if err := input(raw, &in); err != nil {
		return "", err
	}
	what := in.Command + " " + in.Path
	lacks := func(name string) error {
		return bailey.Errorf(bailey.CodeUsage, what, "give "+name, "%s is missing", name)
	}
	if !strings.HasPrefix(in.Path, "/") {
		return "", bailey.Errorf(bailey.CodeUsage, what, "give an absolute path", "%q is none", in.Path)
	}
	switch in.Command {
	case "view":
		return view(ctx, f, in)
	case "create":
		if in.Text == nil {
			return "", lacks("file_text")
		}
		_, err := f.WriteFile(ctx, in.Path, []byte(*in.Text), 0)
		return "wrote " + in.Path, err
	case "str_replace":
		if in.Old == nil || *in.Old == "" {
			return "", lacks("old_str")
		}
		text, err := content(ctx, f, in.Path)
		if err != nil {
			return "", err
		}
		switch n := strings.Count(text, *in.Old); {
		case n == 0:
			return "", bailey.Errorf(bailey.CodeNotFound, what, "view the file and give the text exactly, with its white space", "old_str is not in it")
		case n > 1:
			return "", bailey.Errorf(bailey.CodeConflict, what, "give more of what is around it", "old_str is in it %d times", n)
		}
		var in2 string
		if in.New != nil {
			in2 = *in.New
		}
		_, err = f.WriteFile(ctx, in.Path, []byte(strings.Replace(text, *in.Old, in2, 1)), 0)
		return "replaced once in " + in.Path, err
	case "insert":
		if in.Line == nil {
			return "", lacks("insert_line")
		}
		if in.Insert == nil {
			in.Insert = in.New // as older versions of the tool name it
		}
		if in.Insert == nil {
			return "", lacks("insert_text")
		}
		text, err := content(ctx, f, in.Path)
		if err != nil {
			return "", err
		}
		lines := strings.SplitAfter(text, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		if *in.Line < 0 || *in.Line > len(lines) {
			return "", bailey.Errorf(bailey.CodeUsage, what, fmt.Sprintf("use 0 to %d", len(lines)), "insert_line %d is out of range", *in.Line)
		}
		before, after := strings.Join(lines[:*in.Line], ""), strings.Join(lines[*in.Line:], "")
		if before != "" && !strings.HasSuffix(before, "\n") {
			before += "\n"
		}
		more := *in.Insert
		if after != "" && !strings.HasSuffix(more, "\n") {
			more += "\n"
		}
		_, err = f.WriteFile(ctx, in.Path, []byte(before+more+after), 0)
		return fmt.Sprintf("inserted after line %d of %s", *in.Line, in.Path), err
	}
	return "", bailey.Errorf(bailey.CodeUsage, "edit", "use view, create, str_replace or insert", "there is no command %q", in.Command)
}

// content reads a file that is edited.
func content(ctx context.Context, f *client.Files, path string) (string, error) {
	r, info, err := f.Open(ctx, path, 0, fileMost+1)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(r, fileMost+1))
	err = errors.Join(err, r.Close())
	if err == nil && len(b) > fileMost {
		err = bailey.Errorf(bailey.CodeTooLarge, "read "+path, "work on it with commands", "it has %d bytes, more than %d", info.Size, fileMost)
	}
	return string(b), err
}

// view shows a file with numbers of lines, or what a folder has, two levels deep.
func view(ctx context.Context, f *client.Files, in editIn) (string, error) {
	info, err := f.Stat(ctx, in.Path)
	if err != nil {
		return "", err
	}
	var b clip
	if info.Type == "dir" {
		for e, err := range f.List(ctx, in.Path, 2) {
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%s\n", e.Path)
		}
		return b.text("list a folder further down"), nil
	}
	text, err := content(ctx, f, in.Path)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	from, to := 1, len(lines)
	if in.Range != nil {
		if len(in.Range) == 2 {
			if from = in.Range[0]; in.Range[1] != -1 {
				to = in.Range[1]
			}
		}
		if len(in.Range) != 2 || from < 1 || to < from || to > len(lines) {
			return "", bailey.Errorf(bailey.CodeUsage, "view "+in.Path, fmt.Sprintf("use two numbers of 1 to %d; -1 is the last line", len(lines)), "view_range %v is out of range", in.Range)
		}
	}
	for i, l := range lines[from-1 : to] {
		fmt.Fprintf(&b, "%6d\t%s\n", from+i, l)
	}
	return b.text("use view_range"), nil
}
