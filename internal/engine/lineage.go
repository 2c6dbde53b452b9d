package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/way"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// authorities is where the vault seals the certificate authority of each lineage,
// as l-LINEAGE.age.
var authorities = filepath.Join("secrets", "sealed", "authority")

// forgetLineages destroys the sealed certificate authorities of lineages of which
// neither a sandbox nor a snapshot is left. It goes by what is there, so that what a
// crash has kept from being destroyed is the next time.
func (e *Engine) forgetLineages(ctx context.Context) error {
	files, err := os.ReadDir(filepath.Join(e.home, authorities))
	if errors.Is(err, fs.ErrNotExist) || len(files) == 0 {
		return nil // nobody has had a way out, and no gate is started for this
	}
	if err != nil {
		return storage("list the certificate authorities", err)
	}
	// Rows come before authorities: one of a sandbox that begins now is in a row.
	alive := map[string]bool{}
	for _, b := range e.list() {
		if r := b.record(); r.Sandbox.State != api.StateEnded {
			alive[r.Sandbox.Lineage] = true
		}
	}
	rows, err := e.db.Snapshots(ctx, "")
	if err != nil {
		return err
	}
	for _, row := range rows {
		d, err := readSnapshot(row)
		if err != nil {
			return err // it may be of any of them
		}
		if d.State != state.SnapshotGone {
			alive[d.Lineage] = true
		}
	}
	var w *way.Ways
	for _, f := range files {
		lineage, own := strings.CutPrefix(strings.TrimSuffix(f.Name(), ".age"), "l-")
		if !own || alive[lineage] || e.pools.has(lineage) {
			continue
		}
		if w == nil {
			if w, err = e.gate(); err != nil {
				return err
			}
		}
		if ferr := w.Forget(ctx, lineage); ferr != nil {
			err = errors.Join(err, ferr)
		}
	}
	return err
}
