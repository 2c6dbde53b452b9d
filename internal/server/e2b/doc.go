// Package e2b answers clients that were written for E2B: its SDKs and what stands on
// them. It is a front over the engine: the control API at the listener's own name, and
// what E2B's agent inside a sandbox (envd) answers, at PORT-ID.DOMAIN or by headers.
// Nothing of it runs inside: processes, files and watches are the engine's, so that a
// command goes on when its client or the daemon goes away.
//
// Requests and answers follow E2B's wire: unknown fields are ignored, errors are
// {code, message}. What Bailey does not have is refused with the reason. What a
// sandbox may reach is what the daemon's configuration lets sandboxes of this front
// reach, and a request can only narrow it.
package e2b
