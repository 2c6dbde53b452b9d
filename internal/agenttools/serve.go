package agenttools

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
)

// callMost bounds one call, in bytes: a file that is written is inside.
const callMost = 32 << 20

// Tools are one vendor's tools over one sandbox.
type Tools struct {
	// Sandbox gives the sandbox, made when the first call comes.
	Sandbox func(context.Context) (*client.Sandbox, error)
	answer  func(t *Tools, ctx context.Context, line []byte) any
	schema  string
	shell   *session // Anthropic's bash, nil until its first call
}

// Vendor gives the tools of a vendor: anthropic or openai.
func Vendor(name string, sandbox func(context.Context) (*client.Sandbox, error)) (*Tools, error) {
	switch name {
	case "anthropic":
		return &Tools{Sandbox: sandbox, answer: (*Tools).anthropic, schema: anthropicSchema}, nil
	case "openai":
		return &Tools{Sandbox: sandbox, answer: (*Tools).openai, schema: openaiSchema}, nil
	}
	return nil, bailey.Errorf(bailey.CodeUsage, "serve tools", "say anthropic or openai", "there are none of %q", name)
}

// Schema is what a request to the vendor's API has under tools, as JSON.
func (t *Tools) Schema() string { return t.schema }

// Serve answers each line of r by one of w, until r ends. A line that is no call is
// answered, too. The error is one of reading or writing.
func (t *Tools) Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	defer t.close()
	lines, failed := make(chan []byte), make(chan error, 1)
	// Read beside: whoever is interrupted while nobody calls must not wait for a line.
	go func() {
		in := bufio.NewScanner(r)
		in.Buffer(make([]byte, 0, 64<<10), callMost)
		for in.Scan() {
			select {
			case lines <- bytes.Clone(in.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		failed <- in.Err()
	}()
	for {
		var line []byte
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			if errors.Is(err, bufio.ErrTooLong) {
				err = bailey.Errorf(bailey.CodeTooLarge, "read a call", "write the file in parts", "a line has more than %d bytes", callMost)
			}
			return err
		case line = <-lines:
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		b, err := json.Marshal(t.answer(t, ctx, line))
		if err != nil {
			return err
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return err
		}
	}
}

func (t *Tools) close() {
	if t.shell != nil {
		t.shell.end()
	}
}

// say is an error as a model reads it.
func say(err error) string {
	var e *bailey.Error
	if errors.As(err, &e) {
		return e.Error()
	}
	return err.Error()
}
