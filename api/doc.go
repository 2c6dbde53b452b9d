// Package api holds the words of Bailey's HTTP API: what a request says and what
// an answer tells. The server (internal/server/rest) generates its OpenAPI
// document from these types, the engine takes and gives them as they are, and
// package client sends them. It has types and their checks, and no behaviour.
//
// Durations are texts such as "90s" or "30m", times are RFC 3339 in UTC, sizes
// are bytes. Unknown fields are errors. A value out of range is refused, never
// clamped.
package api
