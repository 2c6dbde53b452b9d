package build

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// add does an ADD: COPY of the context, of archives that are unpacked, and of
// URLs, which are not.
func (s *stage) add(ctx context.Context, c *instructions.AddCommand) error {
	t, owner, mode, dest, err := s.prepare(copyWords{c.SourcesAndDest, c.Chown, c.Chmod, c.ExcludePatterns})
	if err != nil {
		return err
	}
	exclude, err := parseIgnore([]byte(strings.Join(c.ExcludePatterns, "\n")))
	if err != nil {
		return err
	}
	several := len(c.SourcePaths)+len(c.SourceContents) > 1
	for _, n := range c.SourcePaths {
		from, remote := s.b.context, false
		if isRemote(n) {
			if from, n, err = s.fetch(ctx, n, c.Checksum); err != nil {
				return err
			}
			remote = true
		} else if c.Checksum != "" {
			return errors.New("--checksum is for URLs")
		}
		all, err := s.sources(from, []string{n})
		if err != nil {
			return err
		}
		for _, f := range all {
			cp := &copier{tree: t, from: from, owner: owner, mode: mode, exclude: exclude}
			unpacked, err := s.unpacked(ctx, from, f, c.Unpack, remote)
			if err != nil {
				return err
			}
			if unpacked != nil {
				cp.from, cp.keep = unpacked, c.Chown == ""
				if f.entry, err = unpacked.Lstat("/"); err != nil {
					return err
				}
			}
			if remote && unpacked == nil && mode == nil {
				m := modeOf(0o600)
				cp.mode = &m
			}
			if err := s.place(cp, []found{f}, dest, several || len(all) > 1); err != nil {
				return err
			}
		}
	}
	if err := t.texts(c.SourceContents, dest, owner, mode); err != nil {
		return err
	}
	return s.plant(ctx, t, c)
}

func isRemote(name string) bool {
	return strings.Contains(name, "://") || strings.HasPrefix(name, "git@")
}

// fetch gets a URL as a file of a view of its own.
func (s *stage) fetch(ctx context.Context, name, checksum string) (*view.View, string, error) {
	u, err := url.Parse(name)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.HasSuffix(u.Path, ".git") {
		return nil, "", bailey.Errorf(bailey.CodeNotAvailable, "add "+name, "use RUN git clone, or an http or https URL of a file", "only files of http and https URLs can be added")
	}
	base := path.Base(u.Path)
	if base == "/" || base == "." || strings.HasPrefix(base, ".wh.") {
		return nil, "", fmt.Errorf("%q does not say what the file is called", name)
	}
	dir, err := s.b.scratch("fetched")
	if err != nil {
		return nil, "", err
	}
	f, err := os.OpenFile(filepath.Join(dir, base), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, "", storage(err)
	}
	defer f.Close()
	sum := sha256.New()
	if err := s.b.Machine.Fetch(ctx, name, io.MultiWriter(f, sum)); err != nil {
		return nil, "", err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); checksum != "" && checksum != got {
		return nil, "", bailey.Errorf(bailey.CodeBuildFailed, "add "+name, "", "its checksum is %s, not %s", got, checksum)
	}
	return view.New([]string{dir}, rootfs.IDsSingle), globQuote(base), nil
}

func globQuote(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// unpacked gives what an archive holds; nil if it is none, or is to stay one.
func (s *stage) unpacked(ctx context.Context, from *view.View, f found, want *bool, remote bool) (*view.View, error) {
	if !f.entry.Mode.IsRegular() || want != nil && !*want || want == nil && remote {
		return nil, nil
	}
	file, err := from.Open(f.entry)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if isXZ(file) && want == nil {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "unpack "+f.named, "pack it with gzip or zstd, or say --unpack=false to copy it as it is", "it is compressed with xz")
	}
	if !isTar(ctx, file) {
		if want != nil {
			return nil, fmt.Errorf("%s is no archive that can be unpacked", f.named)
		}
		return nil, nil
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	dir, err := s.b.scratch("unpacked")
	if err != nil {
		return nil, err
	}
	if err := s.b.Hands.Unpack(ctx, file, dir); err != nil {
		return nil, err
	}
	return view.New([]string{filepath.Join(dir, "fs")}, rootfs.IDsSingle), nil
}

func isXZ(f *os.File) bool {
	var head [6]byte
	n, _ := f.ReadAt(head[:], 0) // a shorter file is none
	return n == len(head) && string(head[:]) == "\xfd7zXZ\x00"
}

// isTar looks at the beginning of a file, no further than its first entry.
func isTar(ctx context.Context, r io.Reader) bool {
	limits := unpack.DefaultLimits
	limits.Bytes = 1 << 20
	stream, err := unpack.NewStream(ctx, r, limits)
	if err != nil {
		return false
	}
	defer stream.Close()
	h, err := tar.NewReader(stream).Next()
	return (err == nil || errors.Is(err, tar.ErrInsecurePath)) && h != nil
}
