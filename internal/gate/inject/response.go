package inject

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// scrubber takes values out of what comes in. It holds as long as no secret
// changes.
type scrubber struct {
	*search
	placeholders map[string]string // secret of the store → placeholder
	// sameLength: what is put in is as long as what it replaces.
	sameLength bool
}

// search finds the values of some secrets. Sandboxes that have the same share it.
type search struct {
	m          *matcher
	generation uint64
}

// searching gives the search for all values of the secrets of the store as they
// are now: revoked and replaced ones too.
func (i *Issuer) searching(stored []string) *search {
	generation := i.held.Generation()
	key := strings.Join(stored, " ")
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.searches[key]; s != nil && s.generation == generation {
		return s
	}
	for k, s := range i.searches {
		if s.generation != generation {
			delete(i.searches, k)
		}
	}
	var all []pattern
	for _, name := range stored {
		c := i.held.Peek(name)
		if c == nil {
			continue
		}
		values := c.Old
		if c.Value != nil {
			values = append([]*secrets.Value{c.Value}, c.Old...)
		}
		for _, v := range values {
			for _, f := range allForms(string(v.Bytes())) {
				all = append(all, pattern{text: f.text, name: name, plain: f.plain, of: f.of})
			}
		}
	}
	s := &search{newMatcher(all), generation}
	if i.searches == nil {
		i.searches = map[string]*search{}
	}
	i.searches[key] = s
	return s
}

// scrubbing gives the scrubber of the values as they are now, of all secrets
// that the sandbox ever had.
func (g *Grants) scrubbing() *scrubber {
	if s := g.scrub.Load(); s != nil && s.generation == g.from.held.Generation() {
		return s
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	s := &scrubber{placeholders: map[string]string{}, sameLength: true}
	for _, binding := range slices.Sorted(maps.Keys(g.stored)) {
		s.placeholders[g.stored[binding]] = g.placeholders[binding]
	}
	s.search = g.from.searching(slices.Sorted(maps.Keys(s.placeholders)))
	for i := range s.m.patterns {
		p := &s.m.patterns[i]
		s.sameLength = s.sameLength && len(p.of(s.placeholders[p.name])) == len(p.text)
	}
	g.scrub.Store(s)
	return s
}

// with gives what is put in the place of a value.
func (s *scrubber) with(p *pattern) string { return p.of(s.placeholders[p.name]) }

// replace works on a text that is whole.
func (s *scrubber) replace(text string, found func(n int)) string {
	hits := s.m.all(text)
	if len(hits) == 0 {
		return text
	}
	if found != nil {
		found(len(hits))
	}
	var b strings.Builder
	done := 0
	for _, h := range hits {
		b.WriteString(text[done:h.start])
		b.WriteString(s.with(h.pattern))
		done = h.end
	}
	b.WriteString(text[done:])
	return b.String()
}

func (s *scrubber) header(h http.Header, found func(n int)) {
	for name, values := range h {
		for i, v := range values {
			values[i] = s.replace(v, found)
		}
		if clean := s.replace(name, found); clean != name {
			delete(h, name)
			h[clean] = values
		}
	}
}

// windows is what is set aside for the decoder of an answer, in bytes: those of
// gzip and deflate need little.
const windows = 2 << 20

// Response implements act.Secrets.
func (g *Grants) Response(resp *http.Response, found func(n int)) error {
	s := g.scrubbing()
	how := answer{pinned: true} // an answer to an unknown request is treated with care
	if resp.Request != nil {
		if a, ok := resp.Request.Context().Value(sentBy{}).(answer); ok {
			how = a
		}
	}
	if how.pinned {
		// A session that the secret began is a credential too: it stays outside.
		resp.Header.Del("Set-Cookie")
		resp.Header.Del("Set-Cookie2")
	}
	if len(s.m.patterns) == 0 {
		return nil
	}
	s.header(resp.Header, found)
	s.header(resp.Trailer, found)
	resp.Status = s.replace(resp.Status, found)
	if resp.Body == nil || resp.Body == http.NoBody || resp.Request != nil && resp.Request.Method == http.MethodHead {
		return nil
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil // its messages come through Incoming; the body must stay writable
	}
	if how.pinned && resp.StatusCode == http.StatusPartialContent && resp.Request != nil && resp.Request.Header.Get("Range") == "" {
		return refused(Unreadable, "the server sent a part of a body that was asked for whole; a part may begin in the middle of a secret")
	}
	if how.pinned {
		if coding := messageCoding(resp.Header); coding != "" {
			return refused(Unreadable, "the messages in the body have the coding "+printable(coding)+", which the gate does not decode")
		}
	}
	src := resp.Body
	if coding := codings(resp.Header); len(coding) > 0 {
		if resp.Request != nil && (slices.Contains(coding, "zstd") || slices.Contains(coding, "br")) {
			if err := act.Hold(resp.Request.Context(), windows); err != nil {
				return err
			}
		}
		decoded, err := decoder(src, coding)
		switch {
		case err == nil:
			src = decoded
			resp.Header.Del("Content-Encoding")
			resp.Uncompressed = true
			lengthUnknown(resp)
			if tag := resp.Header.Get("Etag"); tag != "" && !strings.HasPrefix(tag, "W/") {
				resp.Header.Set("Etag", "W/"+tag) // the bytes are others, the content is the same
			}
		case how.pinned:
			return err
		}
	}
	if !s.sameLength {
		lengthUnknown(resp)
	}
	if how.pinned {
		// They would tell that something was taken out, and of what.
		for _, h := range []string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest"} {
			resp.Header.Del(h)
		}
	}
	b := &scrubbed{src: src, resp: resp, scrub: s, found: found, s: stream{m: s.m, wait: s.m.longest - 1, hit: func(p *pattern) (string, bool) {
		if found != nil {
			found(1)
		}
		return s.with(p), true
	}}}
	if isGRPC(resp.Header) {
		b.messages = &messages{strict: how.pinned}
	}
	resp.Body = b
	return nil
}

func lengthUnknown(resp *http.Response) {
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
}

// scrubbed is an answer's body without values. What ends a line, a message of
// gRPC or the body goes on at once; what follows the last line end waits for
// more, as far back as a value may begin.
type scrubbed struct {
	src      io.ReadCloser
	resp     *http.Response
	scrub    *scrubber
	found    func(n int)
	s        stream
	messages *messages     // of gRPC, nil otherwise
	in       *[atOnce]byte // from inputs, until the end
	out      []byte
	pos      int
	err      error
}

// atOnce is how many bytes are searched at a time.
const atOnce = 32 << 10

var inputs = sync.Pool{New: func() any { return new([atOnce]byte) }}

func (b *scrubbed) Read(p []byte) (int, error) {
	for b.pos == len(b.out) {
		if b.err != nil {
			return 0, b.err
		}
		if b.in == nil {
			b.in = inputs.Get().(*[atOnce]byte)
		}
		var n int
		n, b.err = b.src.Read(b.in[:])
		// What was kept back is no value if nothing follows it; if the body breaks
		// off it may be most of one, and stays here.
		b.pos, b.out = 0, b.out[:0]
		piece := b.in[:n]
		for b.messages != nil && len(piece) > 0 {
			n, whole, err := b.messages.next(piece)
			if err != nil {
				piece, b.err = nil, err
			}
			if !whole {
				break
			}
			b.out = b.s.feed(b.out, piece[:n], true)
			b.s.restart()
			piece = piece[n:]
		}
		b.out = b.s.feed(b.out, piece, b.err == io.EOF)
		if b.err == io.EOF {
			b.scrub.header(b.resp.Trailer, b.found) // they are known now
		}
		if b.err != nil {
			inputs.Put(b.in)
			b.in = nil
		}
	}
	n := copy(p, b.out[b.pos:])
	b.pos += n
	return n, nil
}

func (b *scrubbed) Close() error { return b.src.Close() }
