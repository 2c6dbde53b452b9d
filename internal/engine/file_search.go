package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// The bounds of a search.
const (
	defaultHits     = 1000
	maxHits         = 100_000
	defaultSearched = 16 << 20
	maxSearched     = 64 << 20
	maxPattern      = 4096
	maxHitText      = 1024 // bytes of a line that are told
	maxSkipped      = 1000
)

// errEnough ends a search that has found as much as was asked for.
var errEnough = errors.New("enough was found")

// SearchFiles finds files and lines: those of a name, those with a text in it, or
// both. It looks into regular files, in no order, and follows no links; the kernel's
// own files below /proc and /sys only when the search begins there.
func (e *Engine) SearchFiles(ctx context.Context, who Caller, ref string, q api.SearchQuery) (api.SearchResult, error) {
	s := &searching{q: q}
	if err := s.check(); err != nil {
		return api.SearchResult{}, err
	}
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return api.SearchResult{}, err
	}
	defer f.end()
	s.f, s.base = f, f.path(q.Path)
	err = f.client.List(f.ctx, s.base, guest.ListOptions{User: f.gen.user, Depth: guest.MaxDepth}, s.look)
	switch {
	case errors.Is(err, errEnough):
		s.result.Cut = true
	case errors.Is(err, syscall.ENAMETOOLONG):
		s.skip(s.base, fmt.Sprintf("there are more than %d levels of folders", guest.MaxDepth))
	case errors.Is(err, syscall.ENOTDIR):
		info, serr := f.client.Stat(f.ctx, s.base, f.gen.user)
		if serr != nil {
			return s.result, f.failed(ctx, searchFiles, serr)
		}
		info.Name = ""
		if err := s.look(info); err != nil && !errors.Is(err, errEnough) {
			return s.result, f.failed(ctx, searchFiles, err)
		} else if err != nil {
			s.result.Cut = true
		}
	case err != nil:
		return s.result, f.failed(ctx, searchFiles, err)
	}
	return s.result, nil
}

const searchFiles = "search files in the sandbox"

// searching is one search.
type searching struct {
	f      *filing
	q      api.SearchQuery
	base   string
	expr   *regexp.Regexp
	left   int // skipped ones that are not told
	result api.SearchResult
}

// check refuses what cannot be searched, and sets defaults.
func (s *searching) check() error {
	refuse := func(fix, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, searchFiles, fix, format, args...)
	}
	q := &s.q
	if q.MaxHits == 0 {
		q.MaxHits = defaultHits
	}
	if q.MaxBytes == 0 {
		q.MaxBytes = defaultSearched
	}
	switch {
	case q.Path == "":
		return refuse("say where", "there is no path")
	case q.Name == "" && q.Text == "":
		return refuse("give a name or a text", "nothing is looked for")
	case q.MaxHits < 0 || q.MaxHits > maxHits:
		return refuse("use 1 to 100000", "%d hits are out of range", q.MaxHits)
	case q.MaxBytes < 0 || q.MaxBytes > maxSearched:
		return refuse("use 1 byte to 64 MiB", "files of %d bytes are out of range", q.MaxBytes)
	case len(q.Text) > maxPattern || len(q.Name) > maxPattern:
		return refuse("use at most 4096 bytes", "the name or text is too long")
	case q.Regexp && q.Text == "":
		return refuse("give a text", "there is no expression")
	}
	if _, err := path.Match(q.Name, ""); err != nil {
		return refuse("write it as a shell does, such as *.go", "%q is no pattern of names", q.Name)
	}
	if q.Regexp {
		var err error
		if s.expr, err = regexp.Compile(q.Text); err != nil {
			return refuse("use the syntax of RE2", "%q is no regular expression: %w", q.Text, err)
		}
	}
	return nil
}

// own are folders of the kernel, where a file need not end.
var own = [...]string{"/proc", "/sys", "/dev"}

// look looks at one file.
func (s *searching) look(i guest.FileInfo) error {
	p := path.Join(s.base, i.Name)
	for _, k := range own {
		if p == k && s.base != k {
			s.skip(k, "it is the kernel's")
		}
		if (p == k || strings.HasPrefix(p, k+"/")) && s.base != k && !strings.HasPrefix(s.base, k+"/") {
			return nil
		}
	}
	if s.q.Name != "" {
		if ok, _ := path.Match(s.q.Name, path.Base(p)); !ok {
			return nil
		}
	}
	if s.q.Text == "" {
		return s.hit(p, 0, nil)
	}
	switch {
	case typeOf(i.Mode) != "file" || i.Size == 0:
		return nil
	case i.Size > s.q.MaxBytes:
		s.skip(p, fmt.Sprintf("it has %d bytes", i.Size))
		return nil
	}
	r, _, err := s.f.client.ReadFile(s.f.ctx, p, guest.ReadOptions{User: s.f.gen.user, Length: s.q.MaxBytes})
	if err != nil {
		if s.f.ctx.Err() != nil || s.f.client.Err() != nil {
			return err
		}
		if bailey.CodeOf(err) != bailey.CodeNotFound { // else it has gone meanwhile
			s.skip(p, "it cannot be read")
		}
		return nil
	}
	defer r.Close()
	return s.lines(p, r)
}

// lines looks for the text in what r gives.
func (s *searching) lines(p string, r io.Reader) error {
	b := bufio.NewReaderSize(r, 64<<10)
	head, _ := b.Peek(8 << 10)
	if bytes.IndexByte(head, 0) >= 0 {
		s.skip(p, "it is no text")
		return nil
	}
	var long []byte
	for n := 1; ; n++ {
		line, err := b.ReadSlice('\n')
		if err == bufio.ErrBufferFull { // at most MaxBytes
			long = append(long[:0], line...)
			for err == bufio.ErrBufferFull {
				line, err = b.ReadSlice('\n')
				long = append(long, line...)
			}
			line = long
		}
		if err != nil && err != io.EOF {
			if s.f.ctx.Err() != nil || s.f.client.Err() != nil {
				return err
			}
			s.skip(p, "it cannot be read")
			return nil
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		found := s.expr != nil && s.expr.Match(line) || s.expr == nil && bytes.Contains(line, []byte(s.q.Text))
		if found && (err == nil || len(line) > 0) {
			if err := s.hit(p, n, line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

func (s *searching) hit(p string, line int, text []byte) error {
	if len(s.result.Hits) == s.q.MaxHits {
		return errEnough
	}
	s.result.Hits = append(s.result.Hits, api.SearchHit{Path: strings.ToValidUTF8(p, "\uFFFD"), Line: line,
		Text: strings.ToValidUTF8(string(text[:min(len(text), maxHitText)]), "\uFFFD")})
	return nil
}

// skip tells what was not looked into. Of very many the last line says how many.
func (s *searching) skip(p, why string) {
	if len(s.result.Skipped) < maxSkipped {
		s.result.Skipped = append(s.result.Skipped, strings.ToValidUTF8(p, "\uFFFD")+": "+why)
		return
	}
	s.left++
	last := fmt.Sprintf("and %d more", s.left)
	if s.left == 1 {
		s.result.Skipped = append(s.result.Skipped, last)
	}
	s.result.Skipped[len(s.result.Skipped)-1] = last
}
