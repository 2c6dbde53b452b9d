package build

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// tree is what a COPY, ADD or WORKDIR puts into its layer.
type tree struct {
	ground *view.View // what the layer comes to lie on
	nodes  map[string]node
}

// node is one file of it.
type node struct {
	entry   view.Entry
	from    *view.View // nil: content
	content []byte
	mode    fs.FileMode // with setuid, setgid and sticky
	owner   User
	xattrs  bool // take them over
}

// maxNodes bounds how many files one step copies.
const maxNodes = 2_000_000

func newTree(ground *view.View) *tree { return &tree{ground: ground, nodes: map[string]node{}} }

func (t *tree) put(at string, n node) error {
	if at == "/" {
		return errors.New("the root itself cannot be replaced")
	}
	if len(t.nodes) >= maxNodes {
		return fmt.Errorf("it copies more than %d files", maxNodes)
	}
	t.nodes[at] = n
	return nil
}

// folder makes sure that there is a folder at a path, links followed, and gives
// where it really is. New ones belong to owner.
func (t *tree) folder(at string, owner User) (string, error) {
	real, err := t.ground.Resolve(at)
	if err != nil {
		return "", err
	}
	for p := real; p != "/"; p = path.Dir(p) {
		if n, ok := t.nodes[p]; ok {
			if !n.entry.Mode.IsDir() {
				return "", fmt.Errorf("%s is no folder", p)
			}
			break
		}
		e, err := t.ground.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			e = view.Entry{Path: p, Mode: fs.ModeDir | 0o755, ModTime: time.Unix(0, 0)}
			t.nodes[p] = node{entry: e, mode: 0o755, owner: owner}
			continue
		}
		if err != nil {
			return "", err
		}
		if !e.Mode.IsDir() {
			return "", fmt.Errorf("%s is no folder", p)
		}
		// As it is, so that the layer's tar does not say otherwise.
		t.nodes[p] = node{entry: e, mode: e.Mode, owner: User{e.UID, e.GID}, from: t.ground, xattrs: true}
	}
	return real, nil
}

// changed says whether the tree does anything to its ground.
func (t *tree) changed() bool {
	for _, n := range t.nodes {
		if n.from != t.ground {
			return true
		}
	}
	return false
}

func (t *tree) sorted() []string { return slices.Sorted(maps.Keys(t.nodes)) }

// digest names the content: what a layer made of it depends on, but times.
func (t *tree) digest() (string, error) {
	h := sha256.New()
	for _, p := range t.sorted() {
		n := t.nodes[p]
		if n.from == t.ground {
			continue // the ground has a key of its own
		}
		fmt.Fprintf(h, "%q %v %d %d %q", p, n.mode|n.entry.Mode.Type(), n.owner.UID, n.owner.GID, n.entry.Link)
		if n.entry.Mode.IsRegular() {
			sum := sha256.New()
			if err := n.copyTo(sum); err != nil {
				return "", err
			}
			h.Write(sum.Sum(nil))
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (n node) copyTo(w io.Writer) error {
	if n.from == nil {
		_, err := w.Write(n.content)
		return err
	}
	f, err := n.from.Open(n.entry)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, n.entry.Size)
	return err
}

// writeTo writes the tree as a layer.
func (t *tree) writeTo(w io.Writer) error {
	tw := tar.NewWriter(w)
	for _, p := range t.sorted() {
		n := t.nodes[p]
		h, err := n.header(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			if err := n.copyTo(tw); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
	}
	return tw.Close()
}

func (n node) header(at string) (*tar.Header, error) {
	name := strings.TrimPrefix(at, "/")
	if strings.HasPrefix(path.Base(name), ".wh.") {
		return nil, errors.New("a file whose name begins with .wh. cannot be in an image")
	}
	h := &tar.Header{Name: name, Uid: n.owner.UID, Gid: n.owner.GID, Mode: bits(n.mode), ModTime: n.entry.ModTime, Format: tar.FormatPAX}
	switch n.entry.Mode.Type() {
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, n.entry.Size
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case fs.ModeSymlink:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, n.entry.Link, 0o777
	case fs.ModeNamedPipe:
		h.Typeflag = tar.TypeFifo
	default:
		return nil, fmt.Errorf("it is a %v, which cannot be copied", n.entry.Mode.Type())
	}
	if !n.xattrs || n.from == nil {
		return h, nil
	}
	xattrs, err := n.from.Xattrs(n.entry)
	for k, v := range xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+k] = v
	}
	return h, err
}

// bits gives a mode as tar writes it.
func bits(m fs.FileMode) int64 {
	b := int64(m.Perm())
	for of, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&of != 0 {
			b |= bit
		}
	}
	return b
}

// modeOf is the inverse of bits.
func modeOf(b uint64) fs.FileMode {
	m := fs.FileMode(b & 0o777)
	for of, bit := range map[fs.FileMode]uint64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if b&bit != 0 {
			m |= of
		}
	}
	return m
}
