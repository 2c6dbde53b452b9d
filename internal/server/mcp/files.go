package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
)

// Bounds of files.
const (
	editMost = 8 << 20 // of a file that is edited, in bytes
	listMost = 1000    // entries of a list
	hitsMost = 200     // of a search
)

type readIn struct {
	on
	Path   string `json:"path" jsonschema:"absolute path in the sandbox"`
	Offset int64  `json:"offset,omitempty" jsonschema:"byte from which to read"`
	Max    int    `json:"max_bytes,omitempty" jsonschema:"default 30000, at most 200000"`
}

type readOut struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Mode string `json:"mode"`
	Text string `json:"text,omitempty"`
	// Base64 is the content of what is no UTF-8 text.
	Base64 string `json:"base64,omitempty"`
	From   int64  `json:"from"`
	Next   int64  `json:"next"`
	Cut    bool   `json:"cut,omitempty"`
}

type writeIn struct {
	on
	Path   string `json:"path" jsonschema:"absolute path in the sandbox; folders on the way are made"`
	Text   string `json:"text,omitempty" jsonschema:"the whole new content"`
	Base64 string `json:"base64,omitempty" jsonschema:"the whole new content, where it is no text"`
	Mode   string `json:"mode,omitempty" jsonschema:"octal permission bits; default: the file's own, or 0644"`
}

type editIn struct {
	on
	Path string `json:"path" jsonschema:"absolute path in the sandbox"`
	Old  string `json:"old" jsonschema:"text that is there, exactly and once"`
	New  string `json:"new" jsonschema:"what takes its place"`
	All  bool   `json:"all,omitempty" jsonschema:"replace every occurrence"`
}

type pathIn struct {
	on
	Path string `json:"path" jsonschema:"absolute path in the sandbox"`
}

type removeIn struct {
	pathIn
	Recursive bool `json:"recursive,omitempty" jsonschema:"a folder with all that is in it"`
}

type moveIn struct {
	on
	From string `json:"from" jsonschema:"absolute path in the sandbox"`
	To   string `json:"to" jsonschema:"absolute path in the sandbox"`
}

type listIn struct {
	pathIn
	Depth int `json:"depth,omitempty" jsonschema:"levels of folders, 1 to 256; default 1"`
}

type listOut struct {
	Files []api.FileInfo `json:"files"`
	Cut   bool           `json:"cut,omitempty"`
}

type searchIn struct {
	on
	Path   string `json:"path" jsonschema:"where to look, with all below"`
	Name   string `json:"name,omitempty" jsonschema:"a glob that names match, as *.go"`
	Text   string `json:"text,omitempty" jsonschema:"what lines have in them"`
	Regexp bool   `json:"regexp,omitempty" jsonschema:"text is a regular expression (RE2)"`
}

type done struct {
	Path   string `json:"path,omitempty"`
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Edits  int    `json:"edits,omitempty"`
}

func (s *server) addFiles(m *sdk.Server) {
	add(m, tool("read_file", "Read a file", "Read a file of the sandbox, from any byte on.", reads), s.readFile)
	add(m, tool("write_file", "Write a file", "Write a whole file. It is there as a whole or as it was before.", changes), s.writeFile)
	add(m, tool("edit_file", "Edit a file", "Replace text in a file. The old text must be there exactly once, or all must be said.", changes), s.editFile)
	add(m, tool("list_files", "List files", "List a folder.", reads), s.listFiles)
	add(m, tool("search_files", "Search files", "Find files by name, and lines by text.", reads), s.searchFiles)
	add(m, tool("move_file", "Move a file", "Give a file or folder another path, in place of what is there.", changes), s.moveFile)
	add(m, tool("remove_file", "Remove a file", "Remove a file, or a folder.", changes), s.removeFile)
}

func (s *server) files(ctx context.Context, o on) (*client.Files, error) {
	box, err := s.box(ctx, o)
	if err != nil {
		return nil, err
	}
	return box.Files(), nil
}

func (s *server) readFile(ctx context.Context, _ *sdk.CallToolRequest, in readIn) (out readOut, text string, err error) {
	most, err := bytesOf(in.Max)
	if err != nil {
		return out, "", err
	}
	if in.Offset < 0 {
		return out, "", bailey.Errorf(bailey.CodeUsage, "read "+in.Path, "use 0 or more", "the offset is less than 0")
	}
	f, err := s.files(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	b, info, err := part(ctx, f, in.Path, in.Offset, most)
	if err != nil {
		return out, "", err
	}
	whole := b
	if in.Offset+int64(len(b)) < info.Size {
		whole = b[:wholeRunes(b)]
	}
	out = readOut{Path: info.Path, Size: info.Size, Mode: info.Mode, From: in.Offset}
	if utf8.Valid(whole) && bytes.IndexByte(whole, 0) < 0 {
		b, out.Text = whole, string(whole)
		text = out.Text
	} else {
		out.Base64 = base64.StdEncoding.EncodeToString(b)
		text = fmt.Sprintf("[%d bytes that are no text; they are in base64]", len(b))
	}
	out.Next = in.Offset + int64(len(b))
	if out.Cut = out.Next < info.Size; out.Cut {
		text += fmt.Sprintf("\n[cut: %d of %d bytes; read on with offset %d]", len(b), info.Size, out.Next)
	}
	return out, text, nil
}

// part reads at most so many bytes of a file.
func part(ctx context.Context, f *client.Files, path string, offset int64, most int) ([]byte, api.FileInfo, error) {
	r, info, err := f.Open(ctx, path, offset, int64(most))
	if err != nil {
		return nil, info, err
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(most)))
	return b, info, errors.Join(err, r.Close())
}

func (s *server) writeFile(ctx context.Context, _ *sdk.CallToolRequest, in writeIn) (out done, text string, err error) {
	data := []byte(in.Text)
	if in.Base64 != "" {
		if in.Text != "" {
			return out, "", bailey.Errorf(bailey.CodeUsage, "write "+in.Path, "leave one out", "text and base64 exclude each other")
		}
		if data, err = base64.StdEncoding.DecodeString(in.Base64); err != nil {
			return out, "", bailey.Errorf(bailey.CodeUsage, "write "+in.Path, "encode it as base64 with padding", "%w", err)
		}
	}
	var mode fs.FileMode
	if in.Mode != "" {
		n, err := strconv.ParseUint(in.Mode, 8, 12)
		if err != nil || n > 0o777 {
			return out, "", bailey.Errorf(bailey.CodeUsage, "write "+in.Path, "write the mode like 0644", "%q is no mode", in.Mode)
		}
		mode = fs.FileMode(n)
	}
	f, err := s.files(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	w, err := f.WriteFile(ctx, in.Path, data, mode)
	return done{Path: w.Path, Size: w.Size, SHA256: w.SHA256}, fmt.Sprintf("wrote %d bytes to %s", w.Size, w.Path), err
}

func (s *server) editFile(ctx context.Context, _ *sdk.CallToolRequest, in editIn) (out done, text string, err error) {
	what := "edit " + in.Path
	f, err := s.files(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	if in.Old == "" || in.Old == in.New {
		return out, "", bailey.Errorf(bailey.CodeUsage, what, "say what is there and what takes its place", "the old text is empty, or the same as the new one")
	}
	b, info, err := part(ctx, f, in.Path, 0, editMost+1)
	if err != nil {
		return out, "", err
	}
	if len(b) > editMost {
		return out, "", bailey.Errorf(bailey.CodeTooLarge, what, "edit it with a command", "it has %d bytes, more than %d", info.Size, editMost)
	}
	n := strings.Count(string(b), in.Old)
	switch {
	case n == 0:
		return out, "", bailey.Errorf(bailey.CodeNotFound, what, "read the file and give the text exactly, with its white space", "the old text is not in it")
	case n > 1 && !in.All:
		return out, "", bailey.Errorf(bailey.CodeConflict, what, "give more of what is around it, or say all", "the old text is in it %d times", n)
	}
	w, err := f.WriteFile(ctx, in.Path, []byte(strings.ReplaceAll(string(b), in.Old, in.New)), 0)
	return done{Path: w.Path, Size: w.Size, SHA256: w.SHA256, Edits: n}, fmt.Sprintf("%d replaced in %s", n, in.Path), err
}

func (s *server) listFiles(ctx context.Context, _ *sdk.CallToolRequest, in listIn) (out listOut, text string, err error) {
	f, err := s.files(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	var b strings.Builder
	out.Files = []api.FileInfo{}
	for info, err := range f.List(ctx, in.Path, max(in.Depth, 1)) {
		if err != nil {
			return out, "", err
		}
		if len(out.Files) == listMost {
			out.Cut = true
			break
		}
		out.Files = append(out.Files, info)
		fmt.Fprintf(&b, "%s %10d %s", info.Mode, info.Size, info.Path)
		switch {
		case info.Target != "":
			b.WriteString(" -> " + info.Target)
		case info.Type == "dir":
			b.WriteString("/")
		}
		b.WriteString("\n")
	}
	if out.Cut {
		fmt.Fprintf(&b, "[cut at %d entries: list a folder below]\n", listMost)
	}
	if len(out.Files) == 0 {
		b.WriteString("[it is empty]")
	}
	return out, b.String(), nil
}

func (s *server) searchFiles(ctx context.Context, _ *sdk.CallToolRequest, in searchIn) (out api.SearchResult, text string, err error) {
	f, err := s.files(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	out, err = f.Search(ctx, api.SearchQuery{Path: in.Path, Name: in.Name, Text: in.Text, Regexp: in.Regexp, MaxHits: hitsMost})
	if err != nil {
		return out, "", err
	}
	if out.Hits == nil {
		out.Hits = []api.SearchHit{}
	}
	var b strings.Builder
	for _, h := range out.Hits {
		if b.WriteString(h.Path); h.Line > 0 {
			fmt.Fprintf(&b, ":%d: %s", h.Line, h.Text)
		}
		b.WriteString("\n")
	}
	if out.Cut {
		fmt.Fprintf(&b, "[cut at %d hits: ask for less]\n", hitsMost)
	}
	for _, skipped := range out.Skipped {
		b.WriteString("[not looked into: " + skipped + "]\n")
	}
	if b.Len() == 0 {
		b.WriteString("[nothing was found]")
	}
	return out, b.String(), nil
}

func (s *server) moveFile(ctx context.Context, _ *sdk.CallToolRequest, in moveIn) (out done, text string, err error) {
	f, err := s.files(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	return done{Path: in.To}, in.From + " is " + in.To + " now", f.Move(ctx, in.From, in.To)
}

func (s *server) removeFile(ctx context.Context, _ *sdk.CallToolRequest, in removeIn) (out done, text string, err error) {
	f, err := s.files(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	return done{Path: in.Path}, in.Path + " is removed", f.Remove(ctx, in.Path, in.Recursive)
}
