package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
)

// failure is why an allowed request got no answer from its server. It has no
// text of a peer's, which could hold anything.
type failure struct {
	Error string `json:"error"` // "upstream", or "gate" when it is the gate's own
	Code  string `json:"code"`
	What  string `json:"what"`
	Why   string `json:"why"`
}

// made builds an answer of the gate's own.
func made(status int, contentType string, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {contentType}, "Cache-Control": {"no-store"},
			"X-Content-Type-Options": {"nosniff"},
		},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// asks tells who asks, as far as it matters for what it can show. r may be nil,
// or without a URL when it had none that could be read.
func asks(r *http.Request) (grpc, git bool) {
	if r == nil {
		return false, false
	}
	git = strings.HasPrefix(r.Header.Get("User-Agent"), "git/") || r.URL != nil && strings.HasPrefix(r.URL.RawQuery, "service=git-")
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"), git
}

// denied answers a refused request: a 403 that says why (or status, when that
// is more), as JSON; as text for git, which shows nothing else to its user; and
// as a status for gRPC, whose clients do not see the body of an error.
func denied(d act.Denial, status int, r *http.Request) *http.Response {
	grpc, git := asks(r)
	var resp *http.Response
	switch {
	case grpc:
		resp = grpcStatus(7, text(d)) // PERMISSION_DENIED
	case git:
		resp = made(status, "text/plain; charset=utf-8", []byte(text(d)+"\n"))
	default:
		body, err := json.Marshal(d)
		if err != nil {
			body = []byte(`{"error":"denied"}`) // a Denial is all text
		}
		resp = made(status, "application/json", append(body, '\n'))
	}
	resp.Header.Set("X-Bailey-Reason", d.Reason)
	return resp
}

// text is a denial in lines.
func text(d act.Denial) string {
	s := fmt.Sprintf("denied: %s: %s [%s]", d.What, d.Why, d.Reason)
	for _, more := range []string{d.Ask, d.Hint} {
		if more != "" {
			s += "\n" + more
		}
	}
	return s
}

// failed answers an allowed request that got no answer.
func failed(status int, code, what, why string, r *http.Request) *http.Response {
	whose := "upstream"
	if status == http.StatusServiceUnavailable {
		whose = "gate"
	}
	grpc, git := asks(r)
	var resp *http.Response
	switch {
	case grpc && status == http.StatusGatewayTimeout:
		resp = grpcStatus(4, why) // DEADLINE_EXCEEDED
	case grpc:
		resp = grpcStatus(14, why) // UNAVAILABLE
	case git:
		resp = made(status, "text/plain; charset=utf-8", fmt.Appendf(nil, "%s: %s [%s]\n", what, why, code))
	default:
		body, err := json.Marshal(failure{whose, code, what, why})
		if err != nil {
			body = []byte(`{"error":"gate"}`)
		}
		resp = made(status, "application/json", append(body, '\n'))
	}
	resp.Header.Set("X-Bailey-Reason", code)
	return resp
}

// grpcStatus answers in the form Trailers-Only of gRPC over HTTP/2.
func grpcStatus(code int, message string) *http.Response {
	resp := made(http.StatusOK, "application/grpc", nil)
	resp.Header.Set("Grpc-Status", strconv.Itoa(code))
	resp.Header.Set("Grpc-Message", strings.ReplaceAll(url.PathEscape(message), "%20", " "))
	return resp
}
