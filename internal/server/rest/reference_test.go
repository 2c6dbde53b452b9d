package rest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/server/rest"
)

// update writes what the tests of this file compare:
//
//	go test ./internal/server/rest -run 'TestWords|TestReference' -update
//
// twice, because the second is made with what the first has written.
var update = flag.Bool("update", false, "write words.json and the reference in docs")

const top = "../../.."

func current(t *testing.T, name string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, err := os.ReadFile(name); err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is not current (%v): go test ./internal/server/rest -run 'TestWords|TestReference' -update, twice", name, err)
	}
}

// TestWords: words.json has what the comments of package api, and of the root
// package's types in it, say.
func TestWords(t *testing.T) {
	words := map[string]string{"Problem": "", "StartedExec": "An Exec, and with wait an ExecResult."}
	for _, dir := range []string{top, top + "/api"} {
		names, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				d, ok := n.(*ast.GenDecl)
				if !ok || d.Tok != token.TYPE {
					return true
				}
				for _, spec := range d.Specs {
					s := spec.(*ast.TypeSpec)
					doc := s.Doc
					if doc == nil {
						doc = d.Doc
					}
					if fields, ok := s.Type.(*ast.StructType); ok {
						words[s.Name.Name] = said(doc)
						for _, f := range fields.Fields.List {
							addField(words, s.Name.Name, f)
						}
					}
				}
				return false
			})
		}
	}
	text, err := json.MarshalIndent(words, "", " ") // sorted by key
	if err != nil {
		t.Fatal(err)
	}
	current(t, "words.json", append(text, '\n'))
}

func addField(words map[string]string, typ string, f *ast.Field) {
	if f.Tag == nil {
		return
	}
	name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
	text := strings.TrimSpace(said(f.Doc) + " " + said(f.Comment))
	if name != "" && name != "-" && text != "" {
		words[typ+"."+name] = text
	}
}

func said(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// refDocument is what the reference needs of the document.
type refDocument struct {
	Paths map[string]map[string]struct {
		ID          string   `json:"operationId"`
		Summary     string   `json:"summary"`
		Description string   `json:"description"`
		Tags        []string `json:"tags"`
		Parameters  []struct {
			Name, In, Description string
			Required              bool
		} `json:"parameters"`
		Body      *refContent           `json:"requestBody"`
		Responses map[string]refContent `json:"responses"`
	} `json:"paths"`
	Components struct{ Schemas map[string]refSchema } `json:"components"`
}

type refContent struct {
	Content map[string]struct{ Schema refSchema } `json:"content"`
}

type refSchema struct {
	Ref         string               `json:"$ref"`
	Type        any                  `json:"type"`
	Description string               `json:"description"`
	Properties  map[string]refSchema `json:"properties"`
	Required    []string             `json:"required"`
	Items       *refSchema           `json:"items"`
	More        any                  `json:"additionalProperties"`
	Encoding    string               `json:"contentEncoding"`
	Format      string               `json:"format"`
}

// kind names a schema as a reader wants it.
func (s refSchema) kind() string {
	if s.Ref != "" {
		name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
		return fmt.Sprintf("[%s](api-types.md#%s)", name, strings.ToLower(name))
	}
	t := fmt.Sprint(s.Type)
	if l, ok := s.Type.([]any); ok && len(l) > 0 {
		t = fmt.Sprint(l[0])
	}
	switch {
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case t == "object":
		return "object"
	case s.Encoding != "":
		return s.Encoding
	case s.Format == "date-time":
		return "time"
	case t == "string":
		return "text"
	case s.Type == nil:
		return "any JSON"
	}
	return t
}

// said names what a body is: JSON's schema, or the media types.
func (c refContent) said() string {
	types := slices.Sorted(maps.Keys(c.Content))
	if len(types) == 0 {
		return ""
	}
	if s := c.Content[types[0]].Schema; s.Ref != "" {
		if slices.Contains(types, "text/event-stream") {
			return "events of " + s.kind()
		}
		return s.kind()
	}
	for i, t := range types {
		types[i] = "`" + t + "`"
	}
	return strings.Join(types, ", ")
}

// TestReference: docs/api.md and docs/api-types.md say what the document says.
func TestReference(t *testing.T) {
	text, err := rest.New(rest.Options{}).Document()
	if err != nil {
		t.Fatal(err)
	}
	var d refDocument
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	intro, err := os.ReadFile("testdata/api-intro.txt")
	if err != nil {
		t.Fatal(err)
	}
	current(t, top+"/docs/api.md", append(intro, operations(d)...))
	current(t, top+"/docs/api-types.md", types(d))
}

func operations(d refDocument) []byte {
	byTag := map[string][]string{}
	for path, methods := range d.Paths {
		for method, o := range methods {
			var parts []string
			for _, p := range o.Parameters {
				if p.In == "path" {
					continue
				}
				name := "`" + p.Name + "`"
				if p.In == "header" {
					name = "header " + name
				}
				if p.Required {
					name += " (needed)"
				}
				parts = append(parts, strings.TrimSuffix(name+": "+p.Description, ": "))
			}
			if o.Body != nil {
				if b := o.Body.said(); b != "" {
					parts = append(parts, "body: "+b)
				}
			}
			answer := ""
			for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
				if status != "default" && answer == "" {
					answer = strings.TrimSpace(status + " " + o.Responses[status].said())
				}
			}
			scope := strings.TrimSuffix(strings.TrimPrefix(o.Description, "Needs the scope "), ".")
			byTag[o.Tags[0]] = append(byTag[o.Tags[0]], fmt.Sprintf("| `%s %s` | %s | %s | %s | %s |", strings.ToUpper(method), path, o.Summary, scope,
				strings.ReplaceAll(strings.Join(parts, "; "), "|", "\\|"), answer))
		}
	}
	var b bytes.Buffer
	for _, tag := range slices.Sorted(maps.Keys(byTag)) {
		rows := byTag[tag]
		slices.SortFunc(rows, func(x, y string) int {
			_, px, _ := strings.Cut(x, " /")
			_, py, _ := strings.Cut(y, " /")
			return strings.Compare(px+x, py+y)
		})
		fmt.Fprintf(&b, "\n### %s\n\n| Operation | What it is for | Scope | Takes | Answers |\n|---|---|---|---|---|\n%s\n", tag, strings.Join(rows, "\n"))
	}
	return b.Bytes()
}

func types(d refDocument) []byte {
	var b bytes.Buffer
	b.WriteString("# Types of the API\n\nMade from the code, as [api.md](api.md) is; a question mark is on what may be left out.\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", name, s.Description)
		var plain []string // need no words of their own
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			p := s.Properties[field]
			mark := "?"
			if slices.Contains(s.Required, field) {
				mark = ""
			}
			text := fmt.Sprintf("`%s`%s %s", field, mark, p.kind())
			if p.Description == "" {
				plain = append(plain, text)
			} else {
				fmt.Fprintf(&b, "- %s: %s\n", text, p.Description)
			}
		}
		if len(plain) > 0 {
			fmt.Fprintf(&b, "- %s\n", strings.Join(plain, ", "))
		}
	}
	return b.Bytes()
}
