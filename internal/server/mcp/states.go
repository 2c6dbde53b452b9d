package mcp

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey/api"
)

type checkpointIn struct {
	on
	Name string `json:"name,omitempty" jsonschema:"to find it again; default: its id"`
}

type checkpointOut struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

type diffIn struct {
	on
	From string `json:"from,omitempty" jsonschema:"a checkpoint or snapshot; default: what the sandbox started from"`
	To   string `json:"to,omitempty" jsonschema:"another one; default: now"`
}

type diffOut struct {
	Changes []api.Change `json:"changes"`
	Cut     bool         `json:"cut,omitempty"`
}

type undoIn struct {
	on
	To    string `json:"to,omitempty" jsonschema:"a checkpoint or snapshot; default: the last checkpoint"`
	Steps int    `json:"steps,omitempty" jsonschema:"or so many checkpoints back"`
	Kill  bool   `json:"kill,omitempty" jsonschema:"end what runs: files cannot be taken back under live processes"`
}

type undoOut struct {
	To   string   `json:"to,omitempty"`
	Kept []string `json:"kept"`
	Lost []string `json:"lost,omitempty"`
}

func (s *server) addStates(m *sdk.Server) {
	add(m, tool("checkpoint", "Make a checkpoint", "Keep the files as they are now, cheaply, for diff and undo.", adds), s.checkpoint)
	add(m, tool("snapshot", "Take a snapshot", "Keep the files as they are now, to start other sandboxes from.", adds), s.snapshot)
	add(m, tool("diff", "Show what changed", "List the files that differ between two states.", reads), s.diff)
	add(m, tool("undo", "Take changes back", "Take all files back to a checkpoint or snapshot.", changes), s.undo)
}

func (s *server) checkpoint(ctx context.Context, _ *sdk.CallToolRequest, in checkpointIn) (out checkpointOut, text string, err error) {
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	c, err := box.Checkpoint(ctx, in.Name)
	return checkpointOut{c.ID, c.Name}, "checkpoint " + c.ID, err
}

func (s *server) snapshot(ctx context.Context, _ *sdk.CallToolRequest, in checkpointIn) (out checkpointOut, text string, err error) {
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	c, err := box.Snapshot(ctx, api.SnapshotSpec{Name: in.Name})
	return checkpointOut{c.ID, c.Name}, fmt.Sprintf("snapshot %s keeps %s", c.ID, strings.Join(c.Receipt.Kept, ", ")), err
}

func (s *server) diff(ctx context.Context, _ *sdk.CallToolRequest, in diffIn) (out diffOut, text string, err error) {
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	out.Changes = []api.Change{}
	var b strings.Builder
	for c, err := range box.Diff(ctx, in.From, in.To) {
		if err != nil {
			return out, "", err
		}
		if len(out.Changes) == listMost {
			out.Cut = true
			fmt.Fprintf(&b, "[cut at %d changes]\n", listMost)
			break
		}
		out.Changes = append(out.Changes, c)
		fmt.Fprintf(&b, "%s %s\n", c.Op, c.Path)
	}
	if b.Len() == 0 {
		b.WriteString("[nothing changed]")
	}
	return out, b.String(), nil
}

func (s *server) undo(ctx context.Context, _ *sdk.CallToolRequest, in undoIn) (out undoOut, text string, err error) {
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	r, err := box.Undo(ctx, api.UndoRequest{To: in.To, Steps: in.Steps, Kill: in.Kill})
	return undoOut{r.Snapshot, append([]string{}, r.Kept...), r.Lost}, "files are as they were; kept: " + strings.Join(r.Kept, ", "), err
}
