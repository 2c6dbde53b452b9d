package rest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// ByExec names an exec.
type ByExec struct {
	BySandbox
	Exec string `path:"exec" maxLength:"128" doc:"The exec's id"`
}

// defaultTail is how much of each stream's end an ExecResult has, in bytes.
const defaultTail = 16 << 20

func (s *Server) execRoutes() {
	type startIn struct {
		BySandbox
		Wait bool  `query:"wait" doc:"Answer once it has ended, with its output: an ExecResult"`
		Tail int64 `query:"tail" minimum:"0" maximum:"268435456" doc:"With wait: the most of each stream's end that the answer has, in bytes; 0 is 16 MiB"`
		Body api.ExecSpec
	}
	type startOut struct {
		Status int
		Body   startedExec
	}
	add(s, op{id: "start-exec", method: http.MethodPost, path: "/sandboxes/{id}/execs", summary: "start a command", scope: access.Exec, status: http.StatusCreated},
		func(ctx context.Context, in *startIn) (*startOut, error) {
			if in.Wait && in.Body.Stdin {
				return nil, bailey.Errorf(bailey.CodeUsage, "run the command", "start it without wait", "who waits for its end cannot give it input")
			}
			e, err := s.engine.StartExec(ctx, caller(ctx), in.ID, in.Body)
			if err != nil {
				return nil, err
			}
			if !in.Wait {
				return &startOut{http.StatusCreated, startedExec{Exec: e}}, nil
			}
			r, err := s.result(ctx, in.ID, e.ID, in.Tail)
			if err != nil {
				return nil, err
			}
			out, errs := orEmpty(r.Out), orEmpty(r.Err)
			return &startOut{http.StatusOK, startedExec{Exec: r.Exec, Out: &out, Err: &errs, Truncated: r.Truncated}}, nil
		})
	add(s, op{id: "list-execs", method: http.MethodGet, path: "/sandboxes/{id}/execs", summary: "list a sandbox's execs", scope: access.Read},
		func(ctx context.Context, in *BySandbox) (*answer[api.ExecList], error) {
			l, err := s.engine.Execs(ctx, caller(ctx), in.ID)
			return answered(api.ExecList{Execs: orEmpty(l)}, err)
		})
	add(s, op{id: "get-exec", method: http.MethodGet, path: "/sandboxes/{id}/execs/{exec}", summary: "look at an exec, also of a sandbox that is gone", scope: access.Read},
		func(ctx context.Context, in *ByExec) (*answer[api.Exec], error) {
			return answered(s.engine.Exec(ctx, caller(ctx), in.ID, in.Exec))
		})
	add(s, op{id: "wait-exec", method: http.MethodGet, path: "/sandboxes/{id}/execs/{exec}/wait", summary: "wait until an exec has ended", scope: access.Read},
		func(ctx context.Context, in *ByExec) (*answer[api.Exec], error) {
			ctx, cancel := s.streaming(ctx)
			defer cancel()
			return answered(s.engine.WaitExec(ctx, caller(ctx), in.ID, in.Exec))
		})
	type signalIn struct {
		ByExec
		Body api.SignalRequest
	}
	add(s, op{id: "signal-exec", method: http.MethodPost, path: "/sandboxes/{id}/execs/{exec}/signal", summary: "send a signal to all processes of an exec", scope: access.Exec},
		func(ctx context.Context, in *signalIn) (*nothing, error) {
			return did(s.engine.SignalExec(ctx, caller(ctx), in.ID, in.Exec, in.Body.Signal))
		})
	type resizeIn struct {
		ByExec
		Body api.Window
	}
	add(s, op{id: "resize-exec", method: http.MethodPost, path: "/sandboxes/{id}/execs/{exec}/resize", summary: "change an exec's terminal's size", scope: access.Exec},
		func(ctx context.Context, in *resizeIn) (*nothing, error) {
			return did(s.engine.ResizeExec(ctx, caller(ctx), in.ID, in.Exec, in.Body))
		})
	type stdinIn struct {
		ByExec
		EOF bool `query:"eof" doc:"Close the input behind the body"`
		upload
	}
	add(s, op{id: "write-stdin", method: http.MethodPost, path: "/sandboxes/{id}/execs/{exec}/stdin", summary: "write to an exec's input", scope: access.Exec, body: []string{"application/octet-stream"}},
		func(ctx context.Context, in *stdinIn) (*nothing, error) {
			if err := in.begin(0, ""); err != nil {
				return nil, err
			}
			return did(in.end(s.writeStdin(ctx, in.ID, in.Exec, &in.upload, in.EOF)))
		})
}

// startedExec is an api.Exec, and with output an api.ExecResult.
type startedExec struct {
	api.Exec
	Out       *[]byte `json:"stdout_data,omitempty" doc:"With wait: what is kept of stdout, base64"`
	Err       *[]byte `json:"stderr_data,omitempty" doc:"With wait: what is kept of stderr, base64"`
	Truncated bool    `json:"truncated,omitempty" doc:"With wait: there was more than stdout_data and stderr_data have"`
}

// writeStdin hands on what comes, as it comes.
func (s *Server) writeStdin(ctx context.Context, ref, id string, r io.Reader, eof bool) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := s.engine.WriteStdin(ctx, caller(ctx), ref, id, buf[:n], false); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			if eof {
				return s.engine.WriteStdin(ctx, caller(ctx), ref, id, nil, true)
			}
			return nil
		}
		if err != nil {
			return bailey.Errorf(bailey.CodeUsage, "read the input", "send it again from where the command has got it", "%w", err)
		}
	}
}
