package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"golang.org/x/sys/unix"
)

// describeImplied looks after folders that a layer needs but does not describe:
// with "tmp/x" and no "tmp/", the layer has a plain /tmp, which would hide the
// mode and owner that a layer below gives it. Since a layer is stored once for
// all images, the answer is one more layer on top that has only those folders,
// as the layers below describe them.
func (s *Store) describeImplied(ctx context.Context, chain []layerRecord) ([]layerRecord, error) {
	var names []string
	for _, l := range chain {
		names = append(names, l.Implied...)
	}
	slices.Sort(names)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	found := 0
	for _, name := range slices.Compact(names) {
		h, err := s.seenThrough(chain, name)
		if err != nil {
			return nil, storage("look at the layers of the image", err)
		}
		if h == nil {
			continue
		}
		found++
		if err := w.WriteHeader(h); err != nil {
			return nil, storage("describe the folders of the image", err)
		}
	}
	if found == 0 {
		return nil, nil
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, _, err := s.layer(ctx, "", func() (input, error) {
		return input{Reader: io.Reader(&b), close: func() {}}, nil
	})
	return []layerRecord{l}, err
}

// seenThrough gives the description that the folder name should have when the
// highest layer that has it only implies it and a lower one describes it; nil
// when nothing is to be done.
func (s *Store) seenThrough(chain []layerRecord, name string) (*tar.Header, error) {
	implied := false
	for i := len(chain) - 1; i >= 0; i-- {
		st, hidden, err := lookIn(path.Join(s.layerDir(chain[i].DiffID), "fs"), name, s.ids)
		if err != nil {
			return nil, err
		}
		if st != nil {
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return nil, nil // a file or a deletion: what is below is not seen
			}
			_, only := slices.BinarySearch(chain[i].Implied, name)
			switch {
			case only:
				implied = true
			case !implied:
				return nil, nil
			default:
				h := &tar.Header{
					Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(st.Mode & 0o7777), Format: tar.FormatPAX,
					ModTime: time.Unix(st.Mtim.Sec, st.Mtim.Nsec),
				}
				if s.ids == rootfs.IDsHost {
					h.Uid, h.Gid = int(st.Uid), int(st.Gid)
				}
				return h, nil
			}
		}
		if hidden {
			return nil, nil
		}
	}
	return nil, nil
}

// lookIn looks name up in one layer without following links. hidden says that
// lower layers do not show through at name, because it or a folder above it is
// opaque or no folder here.
func lookIn(dir, name string, ids rootfs.IDs) (st *unix.Stat_t, hidden bool, err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { unix.Close(fd) }()
	mark := "user.overlay.opaque"
	if ids == rootfs.IDsHost {
		mark = "trusted.overlay.opaque"
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		var got unix.Stat_t
		if err := unix.Fstatat(fd, part, &got, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
			return nil, hidden, nil
		} else if err == unix.EACCES {
			// With ids "single" the modes of the image bind us. What cannot be
			// looked into is left as the layer has it.
			return nil, true, nil
		} else if err != nil {
			return nil, false, &os.PathError{Op: "stat", Path: name, Err: err}
		}
		if got.Mode&unix.S_IFMT != unix.S_IFDIR {
			if i == len(parts)-1 {
				return &got, true, nil
			}
			return nil, true, nil
		}
		next, err := unix.Openat(fd, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, false, &os.PathError{Op: "open", Path: name, Err: err}
		}
		unix.Close(fd)
		fd = next
		var v [1]byte
		if n, err := unix.Getxattr("/proc/self/fd/"+strconv.Itoa(fd), mark, v[:]); err == nil && n == 1 && v[0] == 'y' {
			hidden = true
		}
		if i == len(parts)-1 {
			return &got, hidden, nil
		}
	}
	return nil, hidden, nil
}
