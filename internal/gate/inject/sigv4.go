package inject

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// AWS signs requests instead of sending keys (Signature Version 4, "Signing AWS
// API requests" in the IAM user guide). What a sandbox signs with a placeholder
// is worth nothing, so the gate signs it again, over the same headers.

const (
	awsAlgorithm = "AWS4-HMAC-SHA256"
	emptyHash    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

	unsignedPayload  = "UNSIGNED-PAYLOAD"
	unsignedTrailer  = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	streamingPayload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	streamingTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

// signature is a signed request's Authorization header, taken apart.
type signature struct {
	id            string // the access key's id
	date          string // yyyymmdd
	region        string
	service       string
	signedHeaders []string // lower case

	keyID, key, token string // bindings; token may be ""
}

// shape is what a field of a signature looks like: so many bytes of these.
type shape struct {
	least, most int
	of          string
}

func (f shape) matches(s string) bool {
	if len(s) < f.least || len(s) > f.most {
		return false
	}
	for i := range len(s) {
		if strings.IndexByte(f.of, s[i]) < 0 {
			return false
		}
	}
	return true
}

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyz"
	mixed   = digits + letters + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

var (
	dateForm = shape{8, 8, digits}
	hourForm = shape{6, 6, digits}
	wordForm = shape{1, 64, mixed + "_.-"}
	keyForm  = shape{1, 256, mixed + "_./+=-"}
	nameForm = shape{1, 128, digits + letters + "!#$%&'*+.^_|~-"}
	sigForm  = shape{64, 64, digits + "abcdef"}
)

// isTime tells whether s is of the form 20060102T150405Z.
func isTime(s string) bool {
	return len(s) == 16 && dateForm.matches(s[:8]) && s[8] == 'T' && hourForm.matches(s[9:15]) && s[15] == 'Z'
}

// parseSignature reads the header. It gives false for what is not of its form.
func parseSignature(v string) (*signature, bool) {
	rest, ok := strings.CutPrefix(v, awsAlgorithm)
	if !ok || rest == "" || rest[0] != ' ' {
		return nil, false
	}
	fields := map[string]string{}
	for _, f := range strings.Split(rest, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(f), "=")
		if _, twice := fields[name]; !ok || twice {
			return nil, false
		}
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(fields) != 3 || len(scope) < 5 || !sigForm.matches(fields["Signature"]) {
		return nil, false
	}
	n := len(scope)
	s := &signature{id: strings.Join(scope[:n-4], "/"), date: scope[n-4], region: scope[n-3], service: scope[n-2], signedHeaders: strings.Split(fields["SignedHeaders"], ";")}
	if scope[n-1] != "aws4_request" || !dateForm.matches(s.date) || !wordForm.matches(s.region) || !wordForm.matches(s.service) || !keyForm.matches(s.id) {
		return nil, false
	}
	for _, h := range s.signedHeaders {
		if !nameForm.matches(h) {
			return nil, false
		}
	}
	return s, slices.Contains(s.signedHeaders, "host")
}

func (s *signature) scope() string {
	return s.date + "/" + s.region + "/" + s.service + "/aws4_request"
}

func (s *signature) s3() bool { return strings.HasPrefix(s.service, "s3") }

// signature finds out whether the request is signed with a placeholder of a
// bound key, and which keys are to sign it. nil is a request that is not.
func (j *job) signature(r *http.Request) (*signature, error) {
	auth := r.Header["Authorization"]
	if len(auth) != 1 || !strings.HasPrefix(auth[0], "AWS4-") {
		return nil, j.presigned(r.URL)
	}
	const where = "the signature in Authorization"
	hits := j.scan.m.all(auth[0])
	if len(hits) == 0 {
		if j.pinned {
			return nil, foreign(where)
		}
		return nil, nil // somebody's own, for a host that has no secret
	}
	s, ok := parseSignature(auth[0])
	if !ok {
		return nil, refused(Signature, "the Authorization header has a placeholder and is no "+awsAlgorithm+" signature that can be made anew")
	}
	h := hits[0]
	b := j.bound[h.name]
	if len(hits) > 1 || !h.plain || h.text != s.id || b == nil || !slices.Contains(b.In, inSigV4) {
		return nil, misdirected(h.pattern, where)
	}
	s.keyID = h.name
	return s, j.keys(s)
}

// presigned refuses a URL that carries a signature made with a placeholder: it
// is made for others, who do not come through this gate.
func (j *job) presigned(u *url.URL) error {
	if !strings.Contains(u.RawQuery, "=AWS4-") {
		return nil
	}
	if err := j.scan.check(u.RawQuery, "a presigned URL"); err != nil {
		return refused(Signature, "the URL is presigned with a placeholder, which no server accepts; send the request itself, and the gate signs it")
	}
	return nil
}

// keys finds the secret key, and the session's token, beside a key's id.
func (j *job) keys(s *signature) error {
	for name, b := range j.bound {
		if name == s.keyID || !slices.Contains(b.In, inSigV4) {
			continue
		}
		role := &s.key
		switch b.Env {
		case "AWS_SESSION_TOKEN":
			role = &s.token
		case "AWS_ACCESS_KEY_ID":
			continue
		}
		if *role != "" {
			return refused(Signature, "the rule has more than one secret key for AWS: "+*role+" and "+name)
		}
		*role = name
	}
	if s.key == "" {
		return refused(Signature, "the rule has the secret "+s.keyID+" and no secret key for AWS beside it: bind one with in: [sigv4]")
	}
	return nil
}

// needsBody tells that the body's hash is not in a header.
func (s *signature) needsBody(r *http.Request) bool {
	return r.Header.Get("X-Amz-Content-Sha256") == ""
}

// sign signs the request as it now is.
func (j *job) sign(r *http.Request, s *signature) error {
	stamp := r.Header.Get("X-Amz-Date")
	if !isTime(stamp) || stamp[:8] != s.date {
		return refused(Signature, "the signed request has no X-Amz-Date that fits its signature")
	}
	id, err := j.value(s.keyID)
	if err != nil {
		return err
	}
	secret, err := j.value(s.key)
	if err != nil {
		return err
	}
	if err := j.sessionToken(r.Header, s); err != nil {
		return err
	}
	payload, err := j.payload(r)
	if err != nil {
		return err
	}
	signed, canonical := s.canonical(r, payload)
	key := signingKey(secret, s)
	digest := sha256.Sum256([]byte(canonical))
	mac := hex.EncodeToString(sum(key, awsAlgorithm+"\n"+stamp+"\n"+s.scope()+"\n"+hex.EncodeToString(digest[:])))
	r.Header["Authorization"] = []string{awsAlgorithm + " Credential=" + id + "/" + s.scope() + ", SignedHeaders=" + signed + ", Signature=" + mac}
	if payload == streamingPayload || payload == streamingTrailer {
		if r.Body == nil || r.Body == http.NoBody {
			return refused(Signature, "the request is signed in chunks and has no body")
		}
		r.Body = newChunks(r.Body, key, stamp, s.scope(), mac, payload == streamingTrailer)
	}
	return nil
}

func (j *job) sessionToken(h http.Header, s *signature) error {
	const name = "X-Amz-Security-Token"
	values := h[name]
	if len(values) == 0 {
		return nil
	}
	hits := j.scan.m.all(values[0])
	whole := len(values) == 1 && len(hits) == 1 && hits[0].start == 0 && hits[0].end == len(values[0])
	if !whole {
		return foreign("the header " + name)
	}
	if hits[0].name != s.token || s.token == "" {
		return misdirected(hits[0].pattern, "the header "+name)
	}
	v, err := j.value(s.token)
	if err != nil {
		return err
	}
	h[name] = []string{v}
	return nil
}

// payload gives what stands for the body in the signature.
func (j *job) payload(r *http.Request) (string, error) {
	given := r.Header.Get("X-Amz-Content-Sha256")
	switch given {
	case unsignedPayload, unsignedTrailer, streamingPayload, streamingTrailer:
		return given, nil
	}
	if strings.HasPrefix(given, "STREAMING-") {
		return "", refused(Signature, "the body is signed as "+printable(given)+", which the gate cannot make anew")
	}
	// The body has been read whole if no header had its hash, and may have been
	// if one did; then its hash is made from what is sent.
	held, ok := r.Body.(inMemory)
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		given = emptyHash
	case ok:
		h := sha256.Sum256(held.bytes)
		given = hex.EncodeToString(h[:])
	case !sigForm.matches(given):
		return "", refused(Signature, "the header X-Amz-Content-Sha256 has no hash of the body")
	}
	if r.Header.Get("X-Amz-Content-Sha256") != "" {
		r.Header.Set("X-Amz-Content-Sha256", given)
	}
	return given, nil
}

// inMemory is a body that has been read.
type inMemory struct {
	io.Reader
	bytes []byte
}

func (inMemory) Close() error { return nil }

// canonical gives the canonical request, and the headers that are signed: those
// that the client signed and that still are there. What is changed between the
// gate and the server is left out.
func (s *signature) canonical(r *http.Request, payload string) (signed, canonical string) {
	var names, lines []string
	for _, name := range slices.Sorted(slices.Values(s.signedHeaders)) {
		var value string
		switch name {
		case "host":
			if value = r.Host; value == "" {
				value = r.URL.Host
			}
		case "content-length":
			if r.ContentLength < 0 {
				continue
			}
			value = strconv.FormatInt(r.ContentLength, 10)
		case "accept-encoding", "user-agent", "connection", "expect", "te", "transfer-encoding", "keep-alive", "upgrade", "via", "x-forwarded-for", "authorization":
			continue
		default:
			values, ok := r.Header[http.CanonicalHeaderKey(name)]
			if !ok {
				continue
			}
			trimmed := make([]string, len(values))
			for i, v := range values {
				trimmed[i] = strings.Join(strings.FieldsFunc(v, func(c rune) bool { return c == ' ' || c == '\t' }), " ")
			}
			value = strings.Join(trimmed, ",")
		}
		if slices.Contains(names, name) {
			continue
		}
		names, lines = append(names, name), append(lines, name+":"+value+"\n")
	}
	signed = strings.Join(names, ";")
	return signed, strings.Join([]string{r.Method, s.path(r.URL), canonicalQuery(r.URL.RawQuery), strings.Join(lines, ""), signed, payload}, "\n")
}

// path gives the canonical path: S3 takes it encoded once, the others encode
// what is sent once more.
func (s *signature) path(u *url.URL) string {
	p := u.EscapedPath()
	if s.s3() {
		p = u.Path
	}
	if p == "" {
		return "/"
	}
	return awsEscape(p, true)
}

// canonicalQuery sorts a query by name and value, encoded as AWS does it.
func canonicalQuery(raw string) string {
	if raw == "" {
		return ""
	}
	type pair struct{ k, v string }
	var all []pair
	for _, piece := range strings.Split(raw, "&") {
		if piece == "" {
			continue
		}
		k, v, _ := strings.Cut(piece, "=")
		all = append(all, pair{awsEscape(queryPlain(k), false), awsEscape(queryPlain(v), false)})
	}
	slices.SortFunc(all, func(a, b pair) int {
		if c := strings.Compare(a.k, b.k); c != 0 {
			return c
		}
		return strings.Compare(a.v, b.v)
	})
	out := make([]string, len(all))
	for i, p := range all {
		out[i] = p.k + "=" + p.v
	}
	return strings.Join(out, "&")
}

func queryPlain(s string) string {
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}

// awsEscape percent-encodes all but the unreserved letters of RFC 3986.
func awsEscape(s string, path bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~', path && c == '/':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

func signingKey(secret string, s *signature) []byte {
	k := sum([]byte("AWS4"+secret), s.date)
	k = sum(k, s.region)
	k = sum(k, s.service)
	return sum(k, "aws4_request")
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = io.WriteString(h, text)
	return h.Sum(nil)
}
