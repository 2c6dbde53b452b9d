package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// ByPath names a file of a sandbox.
type ByPath struct {
	BySandbox
	Path string `query:"path" required:"true" maxLength:"4096" doc:"Where it is inside; a relative path begins at the working folder"`
}

func (s *Server) fileRoutes() {
	s.contentRoutes()
	add(s, op{id: "stat-file", method: http.MethodGet, path: "/sandboxes/{id}/files/stat", summary: "look at a file; links are not followed", scope: access.Read},
		func(ctx context.Context, in *ByPath) (*answer[api.FileInfo], error) {
			return answered(s.engine.StatFile(ctx, caller(ctx), in.ID, in.Path))
		})
	type listIn struct {
		ByPath
		Depth int `query:"depth" minimum:"1" maximum:"1000" default:"1" doc:"How many levels deep"`
	}
	add(s, op{id: "list-files", method: http.MethodGet, path: "/sandboxes/{id}/files/list", summary: "list a folder", scope: access.Read, answers: eventTypes, schema: api.Entry{}},
		func(ctx context.Context, in *listIn) (*huma.StreamResponse, error) {
			return s.entries(func(ctx context.Context, send func(api.Entry) error) error {
				return s.engine.ListFiles(ctx, caller(ctx), in.ID, in.Path, in.Depth, func(f api.FileInfo) error { return send(api.Entry{File: &f}) })
			})
		})
	add(s, op{id: "watch-files", method: http.MethodGet, path: "/sandboxes/{id}/files/watch", summary: "be told what changes at and below a path", scope: access.Read,
		answers: eventTypes, schema: api.WatchLine{}},
		func(ctx context.Context, in *ByPath) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.stream(c, false, func(ctx context.Context, send func(string, any) error) error {
					ready := func() { send("", api.WatchLine{Ready: true}) } // the next event finds a broken connection
					return s.engine.WatchFiles(ctx, caller(ctx), in.ID, in.Path, ready, func(ev api.WatchEvent) error {
						return send("", api.WatchLine{Event: &ev})
					})
				}, func(e *bailey.Error) any { return api.WatchLine{Error: e} })
			}}, nil
		})

	type mkdirIn struct {
		BySandbox
		Body api.MkdirRequest
	}
	add(s, op{id: "make-folder", method: http.MethodPost, path: "/sandboxes/{id}/files/mkdir", summary: "make a folder and those above it", scope: access.Exec},
		func(ctx context.Context, in *mkdirIn) (*nothing, error) {
			mode, err := readMode(in.Body.Mode, 0o755)
			if err != nil {
				return nil, err
			}
			return did(s.engine.Mkdir(ctx, caller(ctx), in.ID, in.Body.Path, mode))
		})
	type removeIn struct {
		ByPath
		Recursive bool `query:"recursive" doc:"Also a folder with content"`
	}
	add(s, op{id: "remove-file", method: http.MethodDelete, path: "/sandboxes/{id}/files", summary: "remove a file or folder", scope: access.Exec},
		func(ctx context.Context, in *removeIn) (*nothing, error) {
			return did(s.engine.RemoveFile(ctx, caller(ctx), in.ID, in.Path, in.Recursive))
		})
	type moveIn struct {
		BySandbox
		Body api.MoveRequest
	}
	add(s, op{id: "move-file", method: http.MethodPost, path: "/sandboxes/{id}/files/move", summary: "rename a file or folder", scope: access.Exec},
		func(ctx context.Context, in *moveIn) (*nothing, error) {
			return did(s.engine.MoveFile(ctx, caller(ctx), in.ID, in.Body.From, in.Body.To))
		})
	type searchIn struct {
		BySandbox
		Body api.SearchQuery
	}
	add(s, op{id: "search-files", method: http.MethodPost, path: "/sandboxes/{id}/files/search", summary: "find files and lines", scope: access.Read},
		func(ctx context.Context, in *searchIn) (*answer[api.SearchResult], error) {
			r, err := s.engine.SearchFiles(ctx, caller(ctx), in.ID, in.Body)
			r.Hits = orEmpty(r.Hits)
			return answered(r, err)
		})
}

// contentRoutes are those whose bodies are contents.
func (s *Server) contentRoutes() {
	type readIn struct {
		ByPath
		Offset int64 `query:"offset" minimum:"0" doc:"The first byte"`
		Length int64 `query:"length" minimum:"-1" default:"-1" doc:"How many bytes at most; -1 is to the end"`
	}
	add(s, op{id: "read-file", method: http.MethodGet, path: "/sandboxes/{id}/files", summary: "read a file", scope: access.Read, answers: []string{"application/octet-stream"}},
		func(ctx context.Context, in *readIn) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.send(c, "application/octet-stream", func(ctx context.Context, d *download) error {
					r, info, err := s.engine.ReadFile(ctx, caller(ctx), in.ID, in.Path, in.Offset, in.Length)
					if err != nil {
						return err
					}
					defer r.Close()
					text, err := json.Marshal(info)
					if err != nil {
						return err
					}
					d.headers.Set(api.HeaderFile, ascii(text))
					_, err = io.CopyBuffer(d, struct{ io.Reader }{r}, make([]byte, 128<<10))
					return err
				})
			}}, nil
		})
	type writeIn struct {
		ByPath
		Mode   string `query:"mode" pattern:"^0?[0-7]{1,4}$" doc:"Permission bits, octal; default 0644"`
		SHA256 string `query:"sha256" pattern:"^[0-9a-f]{64}$" doc:"The hash that the body has: another is an error, and nothing is written"`
		upload
	}
	add(s, op{id: "write-file", method: http.MethodPut, path: "/sandboxes/{id}/files", summary: "replace a file, all or nothing", scope: access.Exec, body: []string{"application/octet-stream"}},
		func(ctx context.Context, in *writeIn) (*answer[api.Written], error) {
			mode, err := readMode(in.Mode, 0o644)
			if err == nil {
				err = in.begin(s.opt.Upload, in.SHA256)
			}
			if err != nil {
				return nil, err
			}
			w, err := s.engine.WriteFile(ctx, caller(ctx), in.ID, in.Path, mode, &in.upload)
			return answered(w, in.end(err))
		})
	add(s, op{id: "get-archive", method: http.MethodGet, path: "/sandboxes/{id}/archive", summary: "read a file or folder as a tar archive", scope: access.Read, answers: []string{"application/x-tar"}},
		func(ctx context.Context, in *ByPath) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.send(c, "application/x-tar", func(ctx context.Context, d *download) error {
					return s.engine.TarOut(ctx, caller(ctx), in.ID, in.Path, d)
				})
			}}, nil
		})
	type tarIn struct {
		ByPath
		upload
	}
	add(s, op{id: "put-archive", method: http.MethodPut, path: "/sandboxes/{id}/archive", summary: "unpack a tar archive into a folder", scope: access.Exec,
		body: []string{"application/x-tar", "application/gzip"}},
		func(ctx context.Context, in *tarIn) (*answer[api.TarResult], error) {
			if err := in.begin(s.opt.Upload, ""); err != nil {
				return nil, err
			}
			r, err := s.engine.TarIn(ctx, caller(ctx), in.ID, in.Path, &in.upload)
			return answered(r, in.end(err))
		})
}

// entries answers with a list that is sent as it is found.
func (s *Server) entries(run func(ctx context.Context, send func(api.Entry) error) error) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		s.stream(c, true, func(ctx context.Context, send func(string, any) error) error {
			return run(ctx, func(e api.Entry) error { return send("", e) })
		}, func(e *bailey.Error) any { return api.Entry{Error: e} })
	}}, nil
}

func readMode(text string, otherwise uint32) (uint32, error) {
	if text == "" {
		return otherwise, nil
	}
	m, err := strconv.ParseUint(text, 8, 32)
	if err != nil || m > 0o7777 {
		return 0, bailey.Errorf(bailey.CodeUsage, "read the mode "+text, "write it like 0644", "it is no permission bits in octal")
	}
	return uint32(m), nil
}

// ascii writes JSON so that a header can carry it.
func ascii(text []byte) string {
	var b []byte
	for _, r := range string(text) {
		switch {
		case r < 0x80:
			b = append(b, byte(r))
		case r > 0xffff:
			r -= 0x10000
			b = append(b, `\u`...)
			b = hex4(b, 0xd800+r>>10)
			b = append(b, `\u`...)
			b = hex4(b, 0xdc00+r&0x3ff)
		default:
			b = append(b, `\u`...)
			b = hex4(b, r)
		}
	}
	return string(b)
}

func hex4(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
