package image

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// HostSource is the source that means the built-in template. A folder of that
// name is written ./host.
const HostSource = "host"

// Prepare makes the root file system that source names, or finds it in the
// store. source is
//
//	"" or "host"         the built-in template over the host's own /usr
//	a folder             a root file system, used in place
//	an OCI layout folder the image in it for this machine
//	a tar                a root file system, or an archive of images (OCI
//	                     layout or `docker save`); plain, gzip, zstd or bzip2
//
// and behind a layout or an archive of several images :NAME or @sha256:DIGEST.
//
// Errors have code image_invalid when the source is at fault, not_found when it
// is not there, usage when it is ambiguous, storage when the store is.
func (s *Store) Prepare(ctx context.Context, source string) (rootfs.Root, error) {
	if source == "" || source == HostSource {
		return s.hostTemplate(ctx)
	}
	if strings.IndexByte(source, 0) >= 0 {
		return rootfs.Root{}, bailey.Errorf(bailey.CodeUsage, "read the image", "", "its name contains a NUL byte")
	}
	path, sel, st, err := find(source)
	if err != nil {
		return rootfs.Root{}, err
	}
	switch {
	case st.Mode().IsRegular():
		return s.archive(ctx, path, sel, source)
	case !st.IsDir():
		return rootfs.Root{}, bailey.Errorf(bailey.CodeUsage, "read the image", "name a folder, a tar or an OCI image layout", "%s is neither a file nor a folder", source)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return rootfs.Root{}, imageInvalid("%w", err)
	}
	defer root.Close()
	_, noLayout := root.Lstat("oci-layout")
	_, noIndex := root.Lstat("index.json")
	if noLayout == nil && noIndex == nil {
		return s.layout(ctx, folderBlobs{root}, sel, source)
	}
	if sel != (selection{}) {
		return rootfs.Root{}, bailey.Errorf(bailey.CodeUsage, "read the image", "name the folder alone", "%s is a folder, not a layout with images to choose from", path)
	}
	return s.folder(path, source)
}

// find splits a source into a path that exists and a selection.
func find(source string) (string, selection, fs.FileInfo, error) {
	st, err := os.Stat(source)
	if err == nil {
		return source, selection{}, st, nil
	}
	if p, hex, ok := strings.Cut(source, "@sha256:"); ok && isDigest(hex) {
		if st, serr := os.Stat(p); serr == nil {
			return p, selection{digest: hex}, st, nil
		}
	}
	// A name can have colons of its own (host:port/name:tag), a path too.
	for i := range len(source) {
		if source[i] == ':' && i > 0 && i < len(source)-1 {
			if st, serr := os.Stat(source[:i]); serr == nil {
				return source[:i], selection{name: source[i+1:]}, st, nil
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return "", selection{}, nil, bailey.Errorf(bailey.CodeNotFound, "read the image",
			"name a folder, a tar, an OCI image layout, or \"host\" for the built-in template; images of a registry come in a later version", "there is no %s", source)
	}
	return "", selection{}, nil, imageInvalid("%w", err)
}

// folder uses a folder in place.
func (s *Store) folder(path, source string) (rootfs.Root, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return rootfs.Root{}, imageInvalid("%w", err)
	}
	here, err := os.Stat(abs)
	if err != nil {
		return rootfs.Root{}, imageInvalid("%w", err)
	}
	top, err := os.Stat("/")
	if err != nil {
		return rootfs.Root{}, imageInvalid("%w", err)
	}
	if os.SameFile(here, top) {
		return rootfs.Root{}, bailey.Errorf(bailey.CodeHostRootEquivalent, "use the folder as a root file system",
			"use \"host\" for the host's tools without its secrets", "%s is the root of this machine: the sandbox could read all of it", source)
	}
	if within(s.dir, abs) {
		return rootfs.Root{}, bailey.Errorf(bailey.CodeUsage, "use the folder as a root file system",
			"name a folder that does not contain Bailey's data", "Bailey's own data in %s lies inside it, and would change while it is in use", s.dir)
	}
	d, err := os.Open(abs)
	if err != nil {
		return rootfs.Root{}, imageInvalid("%w", err)
	}
	defer d.Close()
	if _, err := d.Readdirnames(1); err == io.EOF {
		return rootfs.Root{}, imageInvalid("the folder %s is empty: there is nothing in it to run", source)
	} else if err != nil {
		return rootfs.Root{}, imageInvalid("%w", err)
	}
	ids := rootfs.IDsHost
	if os.Geteuid() != 0 {
		ids = rootfs.IDsSingle
	}
	return rootfs.Root{Version: rootfs.Version, Kind: rootfs.KindFolder, Source: source, Layers: []string{abs}, IDs: ids, Reused: true}, nil
}

// within says whether path is dir or lies below it; both absolute and clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
