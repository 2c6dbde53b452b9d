// Package server is the daemon's HTTP server: it puts together who may ask
// (access), what can be asked (rest), what is seen of it (telemetry), who is told
// (webhook) and where it listens (listen), and ends all of it in order.
package server
