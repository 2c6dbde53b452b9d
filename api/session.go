package api

import (
	"encoding/json"
	"time"
)

// SessionSpec is one agent task.
type SessionSpec struct {
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Name           string            `json:"name,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	// Sandbox is what its sandboxes are.
	Sandbox SandboxSpec `json:"sandbox"`
}

// Session outlives its sandboxes.
type Session struct {
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty"`
	Owner      string            `json:"owner"`
	State      string            `json:"state"`             // open, closed
	Sandbox    string            `json:"sandbox,omitempty"` // the present one
	Sandboxes  []string          `json:"sandboxes"`
	Generation int64             `json:"generation"`
	Checkpoint string            `json:"checkpoint,omitempty"` // the last: what a new sandbox starts from
	Labels     map[string]string `json:"labels,omitempty"`
	Created    time.Time         `json:"created"`
	Events     int64             `json:"events"`
}

// SessionEvent is a line of its log.
type SessionEvent struct {
	Seq  int64           `json:"seq"`
	Time time.Time       `json:"time"`
	Kind string          `json:"kind"` // created, provisioned, execute, result, lost, accepted, note, closed …
	Data json.RawMessage `json:"data,omitempty"`
}

// ExecuteRequest runs a command in the session's sandbox.
type ExecuteRequest struct {
	Name string `json:"name"` // what the caller calls the step; in the log
	// Generation is the last one the caller has accepted, 0 for the first.
	Generation int64    `json:"generation"`
	Exec       ExecSpec `json:"exec"`
	Input      []byte   `json:"input,omitempty"` // its standard input
}

// Event is one thing that happened to anything, for webhooks and streams.
type Event struct {
	Seq     int64           `json:"seq"`
	Time    time.Time       `json:"time"`
	Kind    string          `json:"kind"` // sandbox.created, sandbox.paused, exec.ended …
	Owner   string          `json:"owner,omitempty"`
	Sandbox string          `json:"sandbox,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}
