package image

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
)

// Unpack unpacks a tar that nobody vouches for, plain or compressed, as dir/fs,
// outside any store, with the owners of its files in dir/owners as layers have them
// with ids "single". dir must be there and must not hold these two.
func Unpack(ctx context.Context, r io.Reader, dir string, limits unpack.Limits) error {
	const what = "unpack the archive"
	fs := filepath.Join(dir, "fs")
	if err := os.Mkdir(fs, 0o700); err != nil {
		return storage(what, err)
	}
	d, err := os.Open(fs)
	if err != nil {
		return storage(what, err)
	}
	defer d.Close()
	owners, err := os.OpenFile(filepath.Join(dir, "owners"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return storage(what, err)
	}
	defer owners.Close()
	stream, err := unpack.NewStream(ctx, r, limits)
	if err != nil {
		return err
	}
	defer stream.Close()
	_, err = unpack.Layer(stream, d, unpack.Options{IDs: rootfs.IDsSingle, Limits: limits, Owners: owners})
	return err
}
