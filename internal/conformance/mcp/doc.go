// Package mcp holds what an agent that speaks the Model Context Protocol sees of
// Bailey, with the official SDK's client on the other side: over `bailey mcp` and over
// the daemon's /mcp.
package mcp
