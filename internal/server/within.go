package server

import (
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// within carries requests to a handler of the same process, as somebody who was let
// in already: no connection, and no other rights.
type within struct {
	handler http.Handler
	who     access.Identity
	log     *slog.Logger
}

// RoundTrip implements http.RoundTripper. The answer can be read while it is written.
func (t within) RoundTrip(req *http.Request) (*http.Response, error) {
	in := req.WithContext(access.With(req.Context(), t.who))
	in.RequestURI, in.RemoteAddr = req.URL.RequestURI(), "@"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.Header = req.Header.Clone()
	in.Header.Del("Expect") // the body is here
	r, w := io.Pipe()
	a := &answer{header: http.Header{}, body: w, begun: make(chan struct{})}
	go func() {
		defer func() {
			if p := recover(); p != nil { // as net/http does with a connection
				if p != http.ErrAbortHandler {
					t.log.Error("a request failed", "path", in.URL.Path, "panic", p, "stack", string(debug.Stack()))
				}
				a.begin(http.StatusInternalServerError)
				w.CloseWithError(io.ErrUnexpectedEOF)
			}
		}()
		t.handler.ServeHTTP(a, in)
		in.Body.Close()
		a.begin(http.StatusOK)
		w.Close()
	}()
	select {
	case <-a.begun:
	case <-req.Context().Done():
		r.CloseWithError(req.Context().Err())
		return nil, req.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: r, ContentLength: -1, Request: req,
	}, nil
}

// answer is the http.ResponseWriter of such a request.
type answer struct {
	header, sent http.Header
	status       int
	body         *io.PipeWriter
	once         sync.Once
	begun        chan struct{}
}

func (a *answer) begin(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	})
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if status >= 200 {
		a.begin(status)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.body.Write(p)
}

// What a connection has and this has not: nothing is buffered, the reader bounds the
// writer, and who reads no more closes the body.
func (a *answer) Flush()                           { a.begin(http.StatusOK) }
func (a *answer) SetReadDeadline(time.Time) error  { return nil }
func (a *answer) SetWriteDeadline(time.Time) error { return nil }
func (a *answer) EnableFullDuplex() error          { return nil }
