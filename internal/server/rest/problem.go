package rest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// statuses gives each code its HTTP status. A test holds it against the list of
// codes.
var statuses = map[bailey.Code]int{
	bailey.CodeUsage:                http.StatusBadRequest,
	bailey.CodePolicyInvalid:        http.StatusBadRequest,
	bailey.CodeImageInvalid:         http.StatusBadRequest,
	bailey.CodeCommandNotFound:      http.StatusBadRequest,
	bailey.CodeCommandNotExecutable: http.StatusBadRequest,
	bailey.CodeSecretRevoked:        http.StatusBadRequest,
	bailey.CodeUnauthorized:         http.StatusUnauthorized,
	bailey.CodeForbidden:            http.StatusForbidden,
	bailey.CodeWorkspaceRefused:     http.StatusForbidden,
	bailey.CodeHostRootEquivalent:   http.StatusForbidden,
	bailey.CodeMountRefused:         http.StatusForbidden,
	bailey.CodeUntrusted:            http.StatusForbidden,
	bailey.CodeNotFound:             http.StatusNotFound,
	bailey.CodeConflict:             http.StatusConflict,
	bailey.CodeBusy:                 http.StatusConflict,
	bailey.CodeSandboxRestarted:     http.StatusConflict,
	bailey.CodeSandboxEnded:         http.StatusGone,
	bailey.CodeSandboxLost:          http.StatusGone,
	bailey.CodeSnapshotGone:         http.StatusGone,
	bailey.CodeTooLarge:             http.StatusRequestEntityTooLarge,
	bailey.CodeBuildFailed:          http.StatusUnprocessableEntity,
	bailey.CodeRestoreIncomplete:    http.StatusUnprocessableEntity,
	bailey.CodeQuotaExceeded:        http.StatusTooManyRequests,
	bailey.CodeRateLimited:          http.StatusTooManyRequests,
	bailey.CodeInternal:             http.StatusInternalServerError,
	bailey.CodeSetupFailed:          http.StatusInternalServerError,
	bailey.CodeStorage:              http.StatusInternalServerError,
	bailey.CodeAudit:                http.StatusInternalServerError,
	bailey.CodeProtocol:             http.StatusInternalServerError,
	bailey.CodeNotAvailable:         http.StatusNotImplemented,
	bailey.CodeLimitUnavailable:     http.StatusNotImplemented,
	"registry":                      http.StatusBadGateway,
	bailey.CodePortClosed:           http.StatusBadGateway,
	bailey.CodeIsolationUnavailable: http.StatusServiceUnavailable,
	bailey.CodeDaemonUnavailable:    http.StatusServiceUnavailable,
	bailey.CodeDiskFull:             http.StatusInsufficientStorage,
}

// StatusOf gives the HTTP status of a code.
func StatusOf(code bailey.Code) int {
	if s := statuses[code]; s != 0 {
		return s
	}
	return http.StatusInternalServerError
}

// problem is an api.Problem as huma writes it.
type problem struct{ api.Problem }

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

func (p *problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	return h
}

// LimitError is an error with a number: what the limit is and how to stay below
// it or have it changed, and for what passes by itself when to try again.
type LimitError struct {
	Err   *bailey.Error
	Limit int64
	How   string
	After time.Duration
}

// Error gives the bailey.Error's line.
func (e *LimitError) Error() string { return e.Err.Error() }

// Unwrap gives the bailey.Error.
func (e *LimitError) Unwrap() error { return e.Err }

// newProblem makes the answer for err.
func newProblem(err error) *problem {
	var done *problem
	if errors.As(err, &done) {
		return done
	}
	var own *bailey.Error
	if !errors.As(err, &own) {
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			own = bailey.Errorf(bailey.CodeDaemonUnavailable, "finish the request", "ask again", "%w", err)
		default:
			own = bailey.Errorf(bailey.CodeInternal, "do that", "look into the daemon's log", "%w", err)
		}
	}
	status := statuses[own.Code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	p := &problem{api.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: own.Error(),
		Code: own.Code, What: own.What, Why: own.Why, Fix: own.Fix, Generation: own.Generation,
	}}
	if status == http.StatusTooManyRequests || own.Code == bailey.CodeDaemonUnavailable {
		p.RetryAfter = 1
	}
	if own.Code == bailey.CodeTooLarge || status == http.StatusTooManyRequests {
		p.How = own.Fix
	}
	var limit *LimitError
	if errors.As(err, &limit) {
		p.Limit, p.How = limit.Limit, limit.How
		if limit.After > 0 {
			p.RetryAfter = int(math.Ceil(limit.After.Seconds()))
		}
	}
	return p
}

// WriteProblem answers a request with err, for handlers beside the API's own.
func WriteProblem(w http.ResponseWriter, err error) {
	p := newProblem(err)
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = marshal(w, p) // whoever asked has gone
}

// humaProblem is what huma makes of a request that it refuses by itself.
func humaProblem(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
	code, fix := bailey.CodeUsage, "see /openapi.json for what can be said"
	switch {
	case status == http.StatusRequestEntityTooLarge:
		code, fix = bailey.CodeTooLarge, "send less at once"
	case status >= 500:
		code, fix = bailey.CodeInternal, "look into the daemon's log"
	case status == http.StatusUnprocessableEntity:
		status = http.StatusBadRequest
	}
	var faults []api.Fault
	why := msg
	for i, err := range errs {
		if err == nil {
			continue
		}
		var own *bailey.Error
		if errors.As(err, &own) {
			return newProblem(err)
		}
		f := api.Fault{Why: err.Error()}
		var d huma.ErrorDetailer
		if errors.As(err, &d) { // without the value, which may be large or a secret
			f = api.Fault{Place: d.ErrorDetail().Location, Why: d.ErrorDetail().Message}
		}
		faults = append(faults, f)
		if i == 0 {
			why = f.Why
			if f.Place != "" {
				why = f.Place + ": " + f.Why
			}
		}
	}
	if n := len(faults); n > 1 {
		why += fmt.Sprintf(" (and %d more)", n-1)
	}
	p := newProblem(bailey.Errorf(code, "understand the request", fix, "%s", why))
	p.Errors = faults
	if status > 0 {
		p.Status, p.Title = status, http.StatusText(status)
	}
	if ctx != nil && code == bailey.CodeTooLarge {
		p.Limit = ctx.Operation().MaxBodyBytes
		p.How = "send at most so many bytes; larger contents are written with PUT …/files and PUT …/archive"
	}
	return p
}

func init() {
	huma.NewErrorWithContext = humaProblem
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return humaProblem(nil, status, msg, errs...)
	}
	huma.ValidateStrictCasing = true
}
