package ingress

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
)

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Status}} {{.Title}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}code{color:#666}</style>
<h1>{{.Title}}</h1><p>Bailey cannot {{.What}}: {{.Why}}.</p>{{if .Fix}}<p>To fix it: {{.Fix}}</p>{{end}}<p><code>{{.Code}}</code></p></html>
`))

// answer says what is wrong, as a page to a browser and as a problem to programs.
// status 0 is the code's own.
func answer(w http.ResponseWriter, r *http.Request, status int, err error) {
	p := api.Problem{Type: "about:blank", Status: status, Code: bailey.CodeInternal, What: "answer this request", Why: "of a fault, which is in the daemon's log"}
	var own *bailey.Error
	if errors.As(err, &own) && (status != 0 || rest.StatusOf(own.Code) != http.StatusInternalServerError) {
		p.Code, p.What, p.Why, p.Fix = own.Code, own.What, own.Why, own.Fix
	}
	if p.Status == 0 {
		p.Status = rest.StatusOf(p.Code)
	}
	p.Title = http.StatusText(p.Status)
	p.Detail = "cannot " + p.What + ": " + p.Why
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept")
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusGatewayTimeout {
		p.RetryAfter = 1
		h.Set("Retry-After", "1")
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="`+TokenHeader+`"`)
	}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		w.WriteHeader(p.Status)
		_ = page.Execute(w, p) // whoever asked has gone
		return
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}
