package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
)

// failure is an error as clients of the control API and of files read it: the code in
// the body is the HTTP status.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Sandbox string `json:"sandboxId,omitempty"`
	Port    int    `json:"port,omitempty"`
	Limit   int64  `json:"limit,omitempty"`
	How     string `json:"how,omitempty"`
	after   int    // seconds until it makes sense to try again; 0: none is said
}

func (f *failure) Error() string { return f.Message }

func fail(status int, message string) *failure { return &failure{Code: status, Message: message} }

// unsupported is for what E2B has and Bailey has not: said, never pretended.
func unsupported(what, instead string) *failure {
	m := "Bailey does not support " + what
	if instead != "" {
		m += ": " + instead
	}
	return fail(http.StatusBadRequest, m)
}

// notFound is the answer about a sandbox that is not there, or no more.
func notFound(id, why string) *failure {
	m := "The sandbox " + strconv.Quote(id) + " was not found"
	if why != "" {
		m += ": " + why
	}
	return fail(http.StatusNotFound, m)
}

// write answers a request with it. There is always a body: without one clients take
// an error for none.
func (f *failure) write(w http.ResponseWriter) {
	if f.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.after))
	}
	writeJSON(w, f.Code, f)
}

// failed puts an error of the engine into the vendor's shape.
func failed(err error) *failure {
	var done *failure
	if errors.As(err, &done) {
		return done
	}
	var own *bailey.Error
	if !errors.As(err, &own) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return fail(http.StatusServiceUnavailable, "the request was ended before it was done")
		}
		return fail(http.StatusInternalServerError, "a fault in Bailey: look into the daemon's log")
	}
	status := rest.StatusOf(own.Code)
	switch own.Code {
	case bailey.CodeNotAvailable, bailey.CodeLimitUnavailable:
		status = http.StatusBadRequest // 501 is tried again by some clients
	case bailey.CodeSandboxEnded, bailey.CodeSandboxLost, bailey.CodeSnapshotGone:
		status = http.StatusNotFound
	}
	f := fail(status, own.Error())
	if status == http.StatusTooManyRequests {
		f.How = own.Fix
	}
	return f
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"code":500,"message":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // whoever asked has gone
}
