package e2b

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// signedFile says whether the request's signature lets it in.
func (c *call) signedFile() bool {
	op := "read"
	if c.r.Method == http.MethodPost {
		op = "write"
	}
	return signedFor(c.s.token(c.box.ID), op, c.r.URL.Query().Get, time.Now())
}

// fileUser gives who a request about a file is for.
func (c *call) fileUser() (account, *failure) {
	name := c.r.URL.Query().Get("username")
	a, err := c.account(c.ctx(), name)
	if err == nil {
		return a, nil
	}
	var e *connectError
	if errors.As(err, &e) && e.Code == "unauthenticated" {
		return a, fail(http.StatusUnauthorized, fmt.Sprintf("error looking up user '%s': %s", name, e.Message))
	}
	return a, fileFailure(err)
}

// fileFailure puts an error about a file into the vendor's shape.
func fileFailure(err error) *failure {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &failure{Code: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body is larger than %d bytes", large.Limit), Limit: large.Limit,
			How: "send less at once, or raise max_upload in the daemon's configuration"}
	}
	var e *connectError
	if errors.As(err, &e) {
		return fail(e.status(), e.Message)
	}
	f := failed(err)
	if bailey.CodeOf(err) == bailey.CodeDiskFull {
		f.Message = "not enough disk space available: " + f.Message
	}
	return f
}

// about says why a file cannot be read or written, once that has failed.
func (c *call) about(p string, err error) *failure {
	if bailey.CodeOf(err) == bailey.CodeNotFound {
		return fail(http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", p))
	}
	if i, serr := c.target(p); serr == nil && i.Type == "dir" {
		return fail(http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", p))
	}
	return fileFailure(err)
}

func (c *call) download() {
	a, f := c.fileUser()
	if f != nil {
		f.write(c.w)
		return
	}
	p, err := a.resolve(c.r.URL.Query().Get("path"))
	if err != nil {
		fileFailure(err).write(c.w)
		return
	}
	offset, length := int64(0), int64(-1)
	asked := c.r.Header.Get("Range")
	status := http.StatusOK
	h := c.w.Header()
	if asked != "" {
		info, err := c.target(p)
		if err != nil {
			c.about(p, err).write(c.w)
			return
		}
		from, n, ok, none := oneRange(asked, info.Size)
		if none {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", info.Size))
			fail(http.StatusRequestedRangeNotSatisfiable, "the file has no such range").write(c.w)
			return
		}
		if ok {
			offset, length, status = from, n, http.StatusPartialContent
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+n-1, info.Size))
		}
	}
	r, info, err := c.s.engine.ReadFile(c.ctx(), c.who, c.box.ID, p, offset, length)
	if err != nil {
		h.Del("Content-Range")
		c.about(p, err).write(c.w)
		return
	}
	defer r.Close()
	if info.Type == "dir" {
		fail(http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", p)).write(c.w)
		return
	}
	// The size that files of proc have says nothing: what can be read does.
	first := make([]byte, 32<<10)
	n, err := io.ReadFull(r, first)
	whole := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !whole {
		h.Del("Content-Range")
		fileFailure(err).write(c.w)
		return
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(p)}))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Last-Modified", info.ModTime.UTC().Format(http.TimeFormat))
	h.Set("X-Content-Type-Options", "nosniff")
	switch {
	case whole:
		h.Set("Content-Length", strconv.Itoa(n))
	case length >= 0:
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	case info.Size > 0:
		h.Set("Content-Length", strconv.FormatInt(info.Size, 10))
	}
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return
	}
	if _, err := c.w.Write(first[:n]); err != nil || whole {
		return
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{c.w}, struct{ io.Reader }{r}, make([]byte, 128<<10)); err != nil {
		panic(http.ErrAbortHandler) // less than was promised must not look like all
	}
}

// oneRange reads a Range header. ok: it is one range, n bytes from; none: the file has
// no such bytes. Anything else is answered with the whole file, as HTTP lets.
func oneRange(header string, size int64) (from, n int64, ok, none bool) {
	spec, found := strings.CutPrefix(header, "bytes=")
	first, last, both := strings.Cut(strings.TrimSpace(spec), "-")
	if !found || !both || strings.Contains(spec, ",") {
		return 0, 0, false, false
	}
	if first == "" {
		k, err := strconv.ParseInt(last, 10, 64)
		if err != nil || k < 0 {
			return 0, 0, false, false
		}
		k = min(k, size)
		return size - k, k, k > 0, k == 0
	}
	from, err := strconv.ParseInt(first, 10, 64)
	if err != nil || from < 0 {
		return 0, 0, false, false
	}
	to := size - 1
	if last != "" {
		if to, err = strconv.ParseInt(last, 10, 64); err != nil || to < from {
			return 0, 0, false, false
		}
		to = min(to, size-1)
	}
	if from >= size {
		return 0, 0, false, true
	}
	return from, to - from + 1, true, false
}

// writtenFile is the answer about a file that was written: these keys and no others.
type writtenFile struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

func (c *call) upload() {
	a, f := c.fileUser()
	if f != nil {
		f.write(c.w)
		return
	}
	for name := range c.r.Header {
		if strings.HasPrefix(name, "X-Metadata-") {
			unsupported("metadata of files", "").write(c.w)
			return
		}
	}
	body := io.Reader(c.r.Body)
	if c.s.opt.Upload > 0 {
		body = http.MaxBytesReader(c.w, c.r.Body, c.s.opt.Upload)
	}
	switch e := c.r.Header.Get("Content-Encoding"); e {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			fail(http.StatusBadRequest, "the body is not compressed as it says: "+err.Error()).write(c.w)
			return
		}
		body = z
		if c.s.opt.Upload > 0 { // of what it unpacks to, too
			body = http.MaxBytesReader(c.w, z, c.s.opt.Upload)
		}
	default:
		fail(http.StatusUnsupportedMediaType, fmt.Sprintf("the encoding %q is not known: use gzip or none", e)).write(c.w)
		return
	}
	to := c.r.URL.Query().Get("path")
	kind, parameters, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil {
		fail(http.StatusBadRequest, "the Content-Type cannot be read").write(c.w)
		return
	}
	out := []writtenFile{}
	switch kind {
	case "application/octet-stream":
		if to == "" {
			fail(http.StatusBadRequest, "path is required with application/octet-stream").write(c.w)
			return
		}
		w, f := c.put(a, to, body)
		if f != nil {
			f.write(c.w)
			return
		}
		out = append(out, w)
	case "multipart/form-data":
		if out, f = c.putParts(a, to, multipart.NewReader(body, parameters["boundary"])); f != nil {
			f.write(c.w)
			return
		}
	default:
		fail(http.StatusUnsupportedMediaType, fmt.Sprintf("the body is %q: use multipart/form-data or application/octet-stream", kind)).write(c.w)
		return
	}
	writeJSON(c.w, http.StatusOK, out)
}

// putParts writes the files of a form. Without a path each part's name is a whole one.
func (c *call) putParts(a account, to string, form *multipart.Reader) ([]writtenFile, *failure) {
	out := []writtenFile{}
	seen := map[string]bool{}
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				return nil, fileFailure(err)
			}
			return nil, fail(http.StatusBadRequest, "the form cannot be read: "+err.Error())
		}
		if part.FormName() != "file" {
			continue
		}
		name := to
		if name == "" {
			if name = wholeName(part.Header); name == "" {
				return nil, fail(http.StatusBadRequest, "a part of the form has no file name, and there is no path")
			}
		}
		p, err := a.resolve(name)
		if err != nil {
			return nil, fileFailure(err)
		}
		if seen[p] {
			return nil, fail(http.StatusBadRequest, fmt.Sprintf("you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", p))
		}
		seen[p] = true
		w, f := c.put(a, name, part)
		if f != nil {
			return nil, f
		}
		out = append(out, w)
	}
}

// wholeName gives a part's file name with its folders, which mime/multipart takes away.
func wholeName(h textproto.MIMEHeader) string {
	_, p, err := mime.ParseMediaType(h.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return unescapeName.Replace(p["filename"])
}

// unescapeName takes back what clients of the web write for what would end a name.
var unescapeName = strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n")

// put writes one file, all or nothing, and gives it to the user.
func (c *call) put(a account, name string, r io.Reader) (writtenFile, *failure) {
	p, err := a.resolve(name)
	if err != nil {
		return writtenFile{}, fileFailure(err)
	}
	top := ""
	if !a.own {
		top = p
		if _, err := c.s.engine.StatFile(c.ctx(), c.who, c.box.ID, p); err != nil {
			top = c.firstMissing(p)
		}
	}
	var w api.Written
	if w, err = c.s.engine.WriteFile(c.ctx(), c.who, c.box.ID, p, 0, r); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return writtenFile{}, fileFailure(err)
		}
		return writtenFile{}, c.about(p, err)
	}
	if err := c.own(a, top, true); err != nil {
		return writtenFile{}, fileFailure(err)
	}
	return writtenFile{Name: path.Base(w.Path), Path: w.Path, Type: "file"}, nil
}
