package build

import (
	"archive/tar"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// strip copies a layer without what lies at and below the paths drop, at which
// something was mounted, and without folders that are new in the layer, hold
// nothing else and lead there.
func strip(r io.Reader, w io.Writer, ground *view.View, drop []string) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	var held []*tar.Header // new folders on the way to a mount, outermost first
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return tw.Close()
		}
		if err != nil {
			return err
		}
		at := path.Clean("/" + h.Name)
		if base := path.Base(at); strings.HasPrefix(base, ".wh.") && base != ".wh..wh..opq" {
			at = path.Join(path.Dir(at), base[len(".wh."):])
		}
		if slices.ContainsFunc(drop, func(d string) bool { return at == d || strings.HasPrefix(at, d+"/") }) {
			continue
		}
		// What is held and does not lead here leads nowhere else.
		for len(held) > 0 && !strings.HasPrefix(at, path.Clean("/"+held[len(held)-1].Name)+"/") {
			held = held[:len(held)-1]
		}
		leads := slices.ContainsFunc(drop, func(d string) bool { return strings.HasPrefix(d, at+"/") })
		if h.Typeflag == tar.TypeDir && leads && at != "/" {
			if _, err := ground.Lstat(at); err != nil {
				held = append(held, h)
				continue
			}
		}
		for _, f := range held {
			if err := tw.WriteHeader(f); err != nil {
				return err
			}
		}
		held = nil
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
}
