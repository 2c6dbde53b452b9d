package run

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

// maxPolicy bounds a policy document, in bytes.
const maxPolicy = 1 << 20

// ReadPolicy reads a document of the host.
func ReadPolicy(path string) (*control.Document, error) {
	what := "read the policy " + path
	f, err := os.Open(path)
	if err != nil {
		code := bailey.CodeUsage
		if errors.Is(err, fs.ErrNotExist) {
			code = bailey.CodeNotFound
		}
		return nil, bailey.Errorf(code, what, "name a file that can be read", "%w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "name a file that can be read", "%w", err)
	}
	if len(text) > maxPolicy {
		return nil, bailey.Errorf(bailey.CodePolicyInvalid, what, "split it", "it has more than %d bytes", maxPolicy)
	}
	return &control.Document{Name: path, Text: text}, nil
}
