package rest

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// words are what the comments of package api say about its types (Type) and their
// fields (Type.field), so that the document says it too. A test writes the file.
//
//go:embed words.json
var words []byte

var wordsOnce = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	if err := json.Unmarshal(words, &m); err != nil {
		panic(err) // a test reads it
	}
	return m
})

// describe puts the words into the document's schemas.
func describe(d *huma.OpenAPI) {
	known := wordsOnce()
	for name, s := range d.Components.Schemas.Map() {
		if s.Description == "" {
			s.Description = known[name]
		}
		for field, p := range s.Properties {
			if p.Description == "" && p.Ref == "" {
				p.Description = known[name+"."+field]
			}
		}
	}
}

// schema gives the schema of a value's type.
func (s *Server) schema(v any) *huma.Schema {
	t := reflect.TypeOf(v)
	return s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// Document gives the OpenAPI document, as JSON.
func (s *Server) Document() ([]byte, error) {
	return json.MarshalIndent(s.api.OpenAPI(), "", " ")
}

func (s *Server) serveDocument(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery != "" {
		WriteProblem(w, humaProblem(nil, http.StatusBadRequest, "unknown query parameter"))
		return
	}
	b, err := s.Document()
	if err != nil {
		WriteProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/openapi+json")
	w.Write(b) // whoever asked has gone
}

// tag gives the part of the API that a path belongs to.
func tag(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "sandboxes" && len(parts) > 2 {
		switch parts[2] {
		case "execs", "files", "archive":
			return strings.Replace(parts[2], "archive", "files", 1)
		case "snapshots", "fork", "checkpoints", "diff", "undo", "bisect":
			return "snapshots"
		}
	}
	return parts[0]
}
