// Package bailey holds the words that every part of Bailey shares: isolation
// levels, limits, typed ends and errors with stable codes.
//
// Bailey is a self-hosted sandbox for AI agents. One program runs an agent's
// code behind the boundary its owner chooses, and puts one gate around it.
// This package is what a Go program imports to talk about sandboxes; it pulls
// in nothing but the standard library and starts nothing. To run sandboxes
// inside your own process, see the package embedded.
package bailey
