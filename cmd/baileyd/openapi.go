package main

import (
	"context"
	"fmt"
	"io"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
)

// openapiCommand prints the document of the API, as /openapi.json gives it.
func openapiCommand(_ context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		return fail(stderr, false, bailey.Errorf(bailey.CodeUsage, "understand the command line", "baileyd openapi takes nothing", "it has %q", args[0]))
	}
	doc, err := rest.New(rest.Options{}).Document()
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", doc)
	}
	if err != nil {
		return fail(stderr, false, err)
	}
	return 0
}
