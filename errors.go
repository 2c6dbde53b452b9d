package bailey

import (
	"errors"
	"fmt"
)

// Code is the stable, machine-readable name of a kind of failure. Codes are
// part of the API: they are added to, never renamed.
type Code string

// The codes that exist. Each is the "code" field of JSON output and the word
// in brackets at the end of a message.
const (
	CodeUsage                Code = "usage"                 // the request itself is malformed
	CodeIsolationUnavailable Code = "isolation_unavailable" // the level cannot run on this host
	CodeLimitUnavailable     Code = "limit_unavailable"     // a limit that was asked for cannot be enforced here
	CodeWorkspaceRefused     Code = "workspace_refused"     // the workspace is too much of the machine, or cannot be shown whole
	CodeHostRootEquivalent   Code = "host_root_equivalent"  // a mount would hand the sandbox the host
	CodeMountRefused         Code = "mount_refused"         // a mount would show credentials or private data
	CodeCommandNotFound      Code = "command_not_found"     // the command does not exist inside the sandbox
	CodeCommandNotExecutable Code = "command_not_executable"
	CodeImageInvalid         Code = "image_invalid"      // a root file system could not be read
	CodeNotAvailable         Code = "not_available"      // the feature is not in this version, or not on this host
	CodeNotFound             Code = "not_found"          // no such run, sandbox or file
	CodeConflict             Code = "conflict"           // the host changed meanwhile
	CodeBusy                 Code = "busy"               // somebody else holds it
	CodeUntrusted            Code = "untrusted"          // a project file that no person has trusted
	CodeStorage              Code = "storage"            // the data folder cannot be read or written
	CodeAudit                Code = "audit"              // the audit log cannot be written, so that nothing may be done
	CodePolicyInvalid        Code = "policy_invalid"     // a policy document or flag that makes no sense
	CodeSecretRevoked        Code = "secret_revoked"     // a secret that was revoked, and not set anew
	CodeSetupFailed          Code = "setup_failed"       // a step of building the sandbox failed
	CodeSandboxLost          Code = "sandbox_lost"       // the sandbox died under a running request
	CodeSandboxRestarted     Code = "sandbox_restarted"  // it was started anew: the caller has to accept the new generation
	CodeSandboxEnded         Code = "sandbox_ended"      // it is gone; how it ended is kept
	CodeRestoreIncomplete    Code = "restore_incomplete" // what a snapshot holds does not have the hash it should
	CodeSnapshotGone         Code = "snapshot_gone"      // the snapshot was deleted or has expired
	CodeQuotaExceeded        Code = "quota_exceeded"     // the owner, or all, have as much as they may
	CodeDiskFull             Code = "disk_full"          // no more room, in the sandbox or on the host
	CodeTooLarge             Code = "too_large"          // more than may be sent at once
	CodeUnauthorized         Code = "unauthorized"       // no key, or not a valid one
	CodeForbidden            Code = "forbidden"          // the key may not do that
	CodeRateLimited          Code = "rate_limited"       // too many requests; Fix says when to try again
	CodeBuildFailed          Code = "build_failed"       // a step of a template's build failed
	CodeRegistry             Code = "registry"           // a registry of images does not answer, or not as it should
	CodePortClosed           Code = "port_closed"        // nothing in the sandbox listens on the port
	CodeDaemonUnavailable    Code = "daemon_unavailable" // the daemon does not answer
	CodeProtocol             Code = "protocol"           // the other end of a channel said something impossible
	CodeInternal             Code = "internal"           // a fault in Bailey
)

// Error is what every failure of Bailey is, as a person and a program read it:
// what failed, why, and what to do next.
type Error struct {
	Code Code   `json:"code"`
	What string `json:"what"`          // what was attempted: "create the sandbox"
	Why  string `json:"why"`           // the reason, in plain words
	Fix  string `json:"fix,omitempty"` // what to do next; empty when nothing can be advised
	// Generation is, with sandbox_restarted, the new one that the caller has to accept.
	Generation int64 `json:"generation,omitempty"`
	Err        error `json:"-"` // the cause, if any; its text is part of Why already
}

// Error gives one line: what, why, fix and the code.
func (e *Error) Error() string {
	s := "cannot " + e.What + ": " + e.Why
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s + " [" + string(e.Code) + "]"
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf builds an Error. what completes the sentence "cannot …"; fix may be
// empty; format and args give the reason. An error among args that is wrapped
// with %w becomes the cause.
func Errorf(code Code, what, fix, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, What: what, Why: err.Error(), Fix: fix, Err: errors.Unwrap(err)}
}

// CodeOf gives the code of the first Error in err's chain, CodeInternal for
// any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}
