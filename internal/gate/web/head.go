package web

import (
	"net/http"
	"net/textproto"
	"strings"
)

const (
	// maxHead bounds a request's line and fields together.
	maxHead = 64 << 10
	// maxFields bounds the number of fields.
	maxFields = 256
	// maxTarget bounds the target of a request line.
	maxTarget = 16 << 10
)

// malformed is a request that is not let in, for what it is rather than where
// it goes.
type malformed struct {
	status int    // to answer with
	reason string // stable code
	why    string
}

func (e *malformed) Error() string { return e.why }

func bad(why string) *malformed { return &malformed{http.StatusBadRequest, "request_malformed", why} }

// ambiguous is what servers may read in more than one way, which is how
// requests are smuggled.
func ambiguous(why string) *malformed {
	return &malformed{http.StatusBadRequest, "request_ambiguous", why}
}

// head is a request's line and fields as they were written: RFC 9112, without
// what it allows only for the sake of old or lenient peers.
type head struct {
	method, target string
	minor          int // of HTTP/1
	header         http.Header
	host           string // the Host field
	hasHost        bool
	length         int64 // of the body; -1 is chunked
	close          bool  // no other request follows
	expect         bool  // waits for 100 Continue
	upgrade        string
}

// parseHead reads a head, from the request line to the empty line. It is the
// first to see what a sandbox wrote, and what it lets pass has one reading.
func parseHead(text string) (*head, *malformed) {
	line, rest, ok := strings.Cut(text, "\r\n")
	if !ok {
		return nil, bad("the request line has no end")
	}
	h := &head{}
	if e := h.line(line); e != nil {
		return h, e
	}
	n := strings.Count(rest, "\n") // at most as many fields
	if n > maxFields+1 {
		return h, &malformed{http.StatusRequestHeaderFieldsTooLarge, "request_too_large", "it has too many fields"}
	}
	h.header = make(http.Header, n)
	values := make([]string, n)
	for rest != "\r\n" {
		line, rest, ok = strings.Cut(rest, "\r\n")
		if !ok {
			return h, bad("a field has no end")
		}
		name, value, e := field(line)
		if e != nil {
			return h, e
		}
		key := textproto.CanonicalMIMEHeaderKey(name)
		if old := h.header[key]; old != nil {
			h.header[key] = append(old, value)
			continue
		}
		if len(values) == 0 {
			return h, bad("the empty line is missing")
		}
		values[0] = value
		h.header[key], values = values[:1:1], values[1:]
	}
	return h, h.framing()
}

// line reads the request line.
func (h *head) line(line string) *malformed {
	method, rest, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 {
		return bad("the request line has not three parts")
	}
	if !validMethod(method) {
		return bad("the method is no token in capital letters")
	}
	if len(target) > maxTarget {
		return &malformed{http.StatusRequestURITooLong, "request_too_large", "the target is too long"}
	}
	if target == "" || !visible(target) {
		return bad("the target has characters that no URL has")
	}
	h.method, h.target = method, target
	switch version {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
	default:
		return bad("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	return nil
}

// validMethod tells whether a method can be sent on exactly as it was judged.
// Small letters are refused: some servers read them as capital ones.
func validMethod(m string) bool {
	if m == "" || len(m) > 32 || m == "PRI" {
		return false
	}
	for i := range len(m) {
		if c := m[i]; !(c >= 'A' && c <= 'Z' || i > 0 && (c == '-' || c == '_' || c >= '0' && c <= '9')) {
			return false
		}
	}
	return true
}

// visible tells whether s has printable ASCII only, no space, and none of the
// characters that no part of a URL may have (RFC 3986) and that servers differ in.
func visible(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '"' || c == '<' || c == '>' || c == '\\' {
			return false
		}
	}
	return true
}

// tokens are the characters of a field name (RFC 9110, 5.6.2).
var tokens = func() (t [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		t[c] = true
	}
	return t
}()

func validToken(s string) bool {
	for i := range len(s) {
		if !tokens[s[i]] {
			return false
		}
	}
	return s != ""
}

// field reads one field line. Line folding, space before the colon, and bare CR
// and LF are refused.
func field(line string) (name, value string, e *malformed) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !validToken(name) {
		return "", "", bad("a field has no proper name")
	}
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", "", bad("a field has control characters")
		}
	}
	return name, value, nil
}

// framing settles what says where the message ends and what it wants of the
// connection (RFC 9112, sections 6 and 9), and takes it out of the fields.
func (h *head) framing() *malformed {
	hosts := h.header["Host"]
	if len(hosts) > 1 {
		return ambiguous("it has more than one Host")
	}
	if len(hosts) == 1 {
		h.host, h.hasHost = hosts[0], true
	} else if h.minor == 1 {
		return bad("it has no Host")
	}
	delete(h.header, "Host")

	codings, lengths := h.header["Transfer-Encoding"], h.header["Content-Length"]
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return ambiguous("it has both a length and a transfer coding")
	case len(codings) > 0:
		if h.minor == 0 {
			return ambiguous("HTTP/1.0 has no transfer codings")
		}
		if len(codings) > 1 || !strings.EqualFold(codings[0], "chunked") {
			return &malformed{http.StatusNotImplemented, "request_ambiguous", "its transfer coding is not chunked alone"}
		}
		h.length = -1
	case len(lengths) > 1:
		return ambiguous("it has more than one length")
	case len(lengths) == 1:
		n, ok := number(lengths[0])
		if !ok {
			return ambiguous("its length is no plain number")
		}
		h.length = n
	}
	delete(h.header, "Transfer-Encoding")
	delete(h.header, "Content-Length")

	h.close = h.minor == 0
	for _, v := range h.header["Connection"] {
		for option := range strings.SplitSeq(v, ",") {
			option = strings.Trim(option, " \t")
			if strings.EqualFold(option, "close") {
				h.close = true
			}
			if strings.EqualFold(option, "upgrade") && h.minor == 1 {
				h.upgrade = strings.Join(h.header["Upgrade"], ", ")
			}
		}
	}
	if v := h.header["Expect"]; len(v) > 0 {
		if len(v) > 1 || !strings.EqualFold(v[0], "100-continue") {
			return &malformed{http.StatusExpectationFailed, "request_malformed", "it expects what nobody knows"}
		}
		h.expect = h.minor == 1 && h.length != 0
		delete(h.header, "Expect")
	}
	return nil
}

// number reads a length in digits only, of at most 18.
func number(s string) (n int64, ok bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}
