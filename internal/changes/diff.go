package changes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// maxDiffText is the size, in bytes, up to which a text file is compared line
// by line. Larger ones are named with sizes and hashes, as binary files are.
const maxDiffText = 1 << 20

// DiffOptions says how a diff is written.
type DiffOptions struct {
	// Escape escapes what a terminal would obey, in names and contents. A
	// diff without it is for programs, such as git apply.
	Escape bool
}

// Diff writes the set as a unified diff with git's extended headers. Binary and
// large files are named with sizes and hashes only, and git apply refuses them. One file
// is held in memory at a time. Where the host's file has changed meanwhile,
// the old side is what Seal kept of it, if it did, and a line says so.
func Diff(ctx context.Context, run *folder.Run, set *Set, w io.Writer, opts DiffOptions) error {
	d := &differ{run: run, set: set, out: bufio.NewWriterSize(w, 1<<16), escape: opts.Escape, root: -1}
	defer d.close()
	for i := range set.Changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := &set.Changes[i]
		if err := d.change(c); err != nil {
			return scanError(err)
		}
	}
	return d.out.Flush()
}

type differ struct {
	run         *folder.Run
	set         *Set
	out         *bufio.Writer
	escape      bool
	root        int // whose descriptors are open
	layer, host int
}

func (d *differ) open(root int) error {
	if d.root == root {
		return nil
	}
	d.close()
	layer, err := openLayer(d.run, d.set.Roots[root])
	if err != nil {
		return err
	}
	host, err := openRoot(d.set.Roots[root])
	if err != nil {
		unix.Close(layer)
		return err
	}
	d.root, d.layer, d.host = root, layer, host
	return nil
}

func (d *differ) close() {
	if d.root >= 0 {
		unix.Close(d.layer)
		unix.Close(d.host)
		d.root = -1
	}
}

// side is one side of a change, as a diff shows it.
type side struct {
	there bool
	mode  uint32
	text  string // the content, when it is text and not too large
	size  int64
	sum   string // of a file that is not shown as text
	note  string
	// binary says that it is not text, though it has no NUL byte near its start.
	binary bool
}

func (d *differ) change(c *Change) error {
	if err := d.open(c.Root); err != nil {
		return err
	}
	// Git knows files and links. A change of kind is a deletion and an
	// addition; a folder shows in what is in it, but for its mode.
	if c.Was == Dir && c.Is == Dir {
		if c.Mode {
			name := d.name("", c)
			d.printf("# folder %s: mode %04o, was %04o\n", name, c.Layer.Mode&metaModes, c.Host.Mode&metaModes)
		}
		return nil
	}
	was, is := diffable(c.Was), diffable(c.Is)
	if !was && !is {
		if c.Is != None && c.Is != Dir || c.Was != None && c.Was != Dir {
			d.printf("# %s %s%s %s\n", c.Op, c.Was, c.Is, d.name("", c))
		}
		return nil
	}
	var old, new side
	var err error
	if was {
		if old, err = d.oldSide(c); err != nil {
			return err
		}
	}
	if is {
		if new, err = d.newSide(c); err != nil {
			return err
		}
	}
	if old.there && new.there && c.TypeChanged() {
		d.file(c, old, side{})
		d.file(c, side{}, new)
		return nil
	}
	d.file(c, old, new)
	return nil
}

func diffable(k Kind) bool { return k == File || k == Symlink }

func (d *differ) oldSide(c *Change) (side, error) {
	s := side{there: true, mode: gitMode(c.Host.Mode), size: c.Host.Size}
	if c.Was == Symlink {
		s.text, s.size = c.OldTarget, int64(len(c.OldTarget))
		return s, nil
	}
	f, st, err := openFile(d.host, c.Path, false)
	if err == nil {
		defer f.Close()
		same, err := sameHost(f, st, c)
		if err != nil {
			return s, err
		}
		if same {
			return s, d.content(&s, f, c.Binary)
		}
	}
	base, berr := readBase(d.run, c)
	switch {
	case berr != nil:
		return s, berr
	case base != nil && controls(base):
		h := sum(base)
		s.sum, s.binary = hex.EncodeToString(h[:]), true
		s.note = "the host's file has changed meanwhile; the old side is what it was when the run ended"
	case base != nil:
		s.note = "the host's file has changed meanwhile; the old side is what it was when the run ended"
		s.text = string(base)
	case err == nil:
		s.note = "the host's file has changed meanwhile; the old side is what it is now"
		s.size, s.mode = st.Size, gitMode(st.Mode)
		return s, d.content(&s, f, c.Binary)
	case errors.Is(err, unix.EACCES):
		s.note, s.sum = "the host's file is not this user's to read", "?"
	default:
		s.note, s.sum = "the host's file is gone; what it was is not known", "?"
	}
	return s, nil
}

// sameHost says whether the open file of the host is what it was when the run
// was sealed: by its identity, or where Seal took its hash, by what is in it.
func sameHost(f *os.File, st *unix.Stat_t, c *Change) (bool, error) {
	now := workspace.IdentityOf(st)
	if c.Stale {
		return false, nil
	}
	if now.Same(c.Host) || !c.Host.HasContent || now.Size != c.Host.Size || now.Mode != c.Host.Mode {
		return now.Same(c.Host), nil
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, c.Host.Size))
	return err == nil && sum(data) == c.Host.Sum, err
}

func (d *differ) newSide(c *Change) (side, error) {
	s := side{there: true, mode: gitMode(c.Layer.Mode), size: c.Layer.Size}
	if c.Is == Symlink {
		s.text, s.size = c.Target, int64(len(c.Target))
		return s, nil
	}
	f, _, done, err := openLayerFile(d.layer, c.Path)
	if err != nil {
		return s, err
	}
	defer done()
	defer f.Close()
	return s, d.content(&s, f, c.Binary)
}

// content reads a side that can be shown, and hashes one that cannot.
func (d *differ) content(s *side, f *os.File, binary bool) error {
	if !binary && s.size <= maxDiffText {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, maxDiffText+1))
		if err != nil {
			return err
		}
		if len(b) <= maxDiffText && !controls(b) {
			s.text = string(b)
			return nil
		}
		s.binary = len(b) <= maxDiffText
	}
	h, err := sumFile(f)
	s.sum = hex.EncodeToString(h[:])
	return err
}

// controls says whether data holds a control character that no text has: any
// but those from BEL to CR, and ESC. Compressed data without a NUL byte does.
func controls(data []byte) bool {
	return bytes.ContainsFunc(data, func(r rune) bool { return r < 7 || r > 13 && r < ' ' && r != 27 })
}

// gitMode gives the mode as git writes it: it knows links, and files that
// can be executed or not.
func gitMode(mode uint32) uint32 {
	switch {
	case kindOf(mode) == Symlink:
		return 0o120000
	case mode&0o100 != 0:
		return 0o100755
	}
	return 0o100644
}

func (d *differ) file(c *Change, old, new side) {
	for _, s := range []side{old, new} {
		if s.note != "" {
			d.printf("# %s: %s\n", d.name("", c), s.note)
		}
	}
	a, b := d.name("a/", c), d.name("b/", c)
	d.printf("diff --git %s %s\n", a, b)
	switch {
	case !old.there:
		d.printf("new file mode %06o\n", new.mode)
		a = "/dev/null"
	case !new.there:
		d.printf("deleted file mode %06o\n", old.mode)
		b = "/dev/null"
	case old.mode != new.mode:
		d.printf("old mode %06o\nnew mode %06o\n", old.mode, new.mode)
	}
	if old.sum != "" || new.sum != "" {
		if old.sum == new.sum && old.there && new.there {
			return
		}
		kind := "Binary"
		if !c.Binary && !old.binary && !new.binary {
			kind = "Large"
		}
		d.printf("%s files %s and %s differ\n", kind, a, b)
		d.printf("# was %s\n# is %s\n", about(old), about(new))
		return
	}
	if old.text == new.text {
		return
	}
	text, err := udiff.ToUnified(a, b, old.text, lineEdits(old.text, new.text), udiff.DefaultContextLines)
	if err != nil {
		d.printf("# the lines cannot be compared: %s\n", Printable(err.Error()))
		return
	}
	if d.escape {
		text = terminal.PrintableText(text, "\n\t\\")
	}
	d.out.WriteString(text)
}

func lineEdits(old, new string) []udiff.Edit { return udiff.Lines(old, new) }

func about(s side) string {
	switch {
	case !s.there:
		return "not there"
	case s.sum == "?":
		return "unknown"
	case s.sum == "":
		h := sum([]byte(s.text))
		return fmt.Sprintf("%d bytes, sha256 %x", s.size, h)
	}
	return fmt.Sprintf("%d bytes, sha256 %s", s.size, s.sum)
}

// name gives a path as git quotes it in a diff. Roots other than the
// workspace are named by their absolute paths.
func (d *differ) name(prefix string, c *Change) string {
	p := c.Path
	if c.Root > 0 {
		p = strings.TrimPrefix(filepath.Join(d.set.Roots[c.Root].Path, p), "/")
	}
	q := quoteGit(prefix + p)
	if d.escape {
		q = terminal.PrintableText(q, "\\")
	}
	return q
}

// quoteGit quotes a name as git does with core.quotePath off: in C's manner,
// when it holds a control character, a quote or a backslash.
func quoteGit(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r == 0x7f }) {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(name); i++ {
		switch ch := name[i]; {
		case ch == '"' || ch == '\\':
			b.WriteByte('\\')
			b.WriteByte(ch)
		case ch == '\n':
			b.WriteString(`\n`)
		case ch == '\t':
			b.WriteString(`\t`)
		case ch < ' ' || ch == 0x7f:
			fmt.Fprintf(&b, `\%03o`, ch)
		default:
			b.WriteByte(ch)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (d *differ) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }
