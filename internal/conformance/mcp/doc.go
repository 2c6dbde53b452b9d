// Package mcp holds what an agent that speaks the Model Context Protocol sees of
// Bailey, with the official SDK's client on the other side: over `bailey mcp` and over
// the daemon's /mcp. It also calls the tools that vendors' models know, as `bailey tool`
// serves them.
package mcp
