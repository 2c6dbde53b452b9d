// Package rest is the native HTTP API: every method of the engine below /v1, as
// JSON with streams. The OpenAPI 3.1 document is made from the code that serves.
//
// Input is strict: an unknown field or query parameter, a field twice, a value
// out of range is an error with code usage. Every failure is an api.Problem, and
// every code has one status. What is large is streamed and has a hash behind it;
// what goes on is sent as server-sent events, or as lines of JSON for those who
// accept application/x-ndjson, with ids from which a reader goes on.
//
// Who asks has been found out before: see package access. This package checks
// only whether the caller's scopes allow the operation. It touches nothing of the
// host.
package rest
