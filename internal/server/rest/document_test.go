package rest_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
	"github.com/bailey-sandbox/bailey/internal/server/standin"
)

// codes reads the stable codes from where they are defined.
func codes(t *testing.T) (list []bailey.Code) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "Code") {
			list = append(list, bailey.Code(strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`)))
		}
		return true
	})
	if len(list) < 30 {
		t.Fatalf("only these were found: %v", list)
	}
	return list
}

func TestEveryCodeHasAStatus(t *testing.T) {
	want := map[bailey.Code]int{
		"usage": 400, "unauthorized": 401, "forbidden": 403, "not_found": 404, "conflict": 409, "busy": 409, "sandbox_restarted": 409, "sandbox_ended": 410,
		"snapshot_gone": 410, "too_large": 413, "rate_limited": 429, "quota_exceeded": 429, "disk_full": 507, "not_available": 501, "isolation_unavailable": 503, "internal": 500,
	}
	for _, c := range codes(t) {
		w := httptest.NewRecorder()
		rest.WriteProblem(w, bailey.Errorf(c, "do it", "", "of a test"))
		if w.Code == 500 && !slices.Contains([]bailey.Code{"internal", "setup_failed", "storage", "audit", "protocol"}, c) {
			t.Errorf("%s has no status of its own", c)
		}
		if n := want[c]; n != 0 && n != w.Code {
			t.Errorf("%s has the status %d, not %d", c, w.Code, n)
		}
		var p api.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code != c {
			t.Errorf("%s is answered as %s", c, w.Body)
		}
	}
}

type document struct {
	OpenAPI    string                               `json:"openapi"`
	Paths      map[string]map[string]operation      `json:"paths"`
	Components struct{ Schemas map[string]schemas } `json:"components"`
}

type schemas struct {
	Description string `json:"description"`
}

type operation struct {
	ID        string                     `json:"operationId"`
	Summary   string                     `json:"summary"`
	Responses map[string]json.RawMessage `json:"responses"`
}

func readDocument(t *testing.T, api *rest.Server) (d document) {
	t.Helper()
	w := httptest.NewRecorder()
	let(api, owner).ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDocumentHasEveryRoute holds the document against what is served.
func TestDocumentHasEveryRoute(t *testing.T) {
	api := rest.New(rest.Options{Engine: standin.New()})
	d := readDocument(t, api)
	if !strings.HasPrefix(d.OpenAPI, "3.1") {
		t.Errorf("it is OpenAPI %s", d.OpenAPI)
	}
	var documented []string
	ids := map[string]bool{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if op.ID == "" || ids[op.ID] || op.Summary == "" || op.Responses["default"] == nil || len(op.Responses) < 2 {
				t.Errorf("%s %s: %+v", method, path, op)
			}
			ids[op.ID] = true
		}
	}
	slices.Sort(documented)
	if routes := api.Routes(); !slices.Equal(routes, documented) {
		t.Errorf("served are\n%s\ndocumented are\n%s", strings.Join(routes, "\n"), strings.Join(documented, "\n"))
	}
	for name, s := range d.Components.Schemas {
		if s.Description == "" && name != "StartedExec" {
			t.Errorf("nothing says what %s is", name)
		}
	}
}

var inBraces = regexp.MustCompile(`\{[^}]*\}`)

// requestFor makes some request for a route.
func requestFor(route string) *http.Request {
	method, path, _ := strings.Cut(route, " ")
	return httptest.NewRequest(method, inBraces.ReplaceAllString(path, "1"), strings.NewReader("{}"))
}

// TestNothingWithoutAScope: no operation is forgotten.
func TestNothingWithoutAScope(t *testing.T) {
	e := standin.New()
	api := rest.New(rest.Options{Engine: e})
	for _, route := range api.Routes() {
		for id, want := range map[string]int{"": 401, "key:nothing": 403} {
			w := httptest.NewRecorder()
			r := requestFor(route)
			who := access.Identity{}
			who.Name = id
			let(api, who).ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s by %q is answered with %d", route, id, w.Code)
			}
		}
	}
	if calls := e.Calls(); len(calls) > 0 {
		t.Errorf("the engine was asked all the same: %v", calls)
	}
}

// TestScopes: what changes something is for keys that may.
func TestScopes(t *testing.T) {
	api := rest.New(rest.Options{Engine: standin.New()})
	for route, scope := range map[string]access.Scope{
		"GET /v1/sandboxes": access.Read, "POST /v1/sandboxes": access.Write, "DELETE /v1/sandboxes/{id}": access.Write, "POST /v1/sandboxes/{id}/execs": access.Exec,
		"PUT /v1/sandboxes/{id}/files": access.Exec, "GET /v1/sandboxes/{id}/files": access.Read, "POST /v1/keys": access.Admin, "POST /v1/gc": access.Admin, "POST /v1/webhooks": access.Admin,
	} {
		for _, has := range access.Scopes {
			who := access.Identity{Scopes: []access.Scope{has}}
			who.Name = "key:x"
			w := httptest.NewRecorder()
			let(api, who).ServeHTTP(w, requestFor(route))
			if allowed := has == scope || has == access.Admin; allowed == (w.Code == 403) {
				t.Errorf("%s with %s is answered with %d", route, has, w.Code)
			}
		}
	}
}
