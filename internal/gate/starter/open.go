package starter

import (
	"context"
	"os"
	"path"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
)

// Open asks for a way out of a sandbox with that root, of whose files o.Root is
// made. The answer's files have paths without links, and none twice.
func (p *Process) Open(ctx context.Context, o control.Open, root rootfiles.Root, names *os.File) (*control.Opened, error) {
	if err := p.Secrets(o.Policy); err != nil {
		return nil, err
	}
	if o.Lineage != "" {
		if err := p.Lineage(o.Lineage); err != nil {
			return nil, err
		}
	}
	seen := root.Look()
	o.Root = control.Root{Stores: seen.Stores}
	for _, b := range seen.Bundles {
		o.Root.Bundles = append(o.Root.Bundles, control.File{Path: b.Path, Content: b.Text})
	}
	opened, err := p.Client.Open(ctx, o, names)
	if err != nil {
		return nil, p.Why(err)
	}
	var files []control.File
	there := map[string]bool{}
	for _, f := range opened.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path {
			return nil, bailey.Errorf(bailey.CodeProtocol, "install the certificate authority", "", "the gate named the file %q", f.Path)
		}
		f.Path = root.Real(f.Path)
		if !there[f.Path] { // one file may have several names
			files = append(files, f)
		}
		there[f.Path] = true
	}
	opened.Files = files
	return opened, nil
}
