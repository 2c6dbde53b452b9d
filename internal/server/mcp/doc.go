// Package mcp serves a sandbox to agents that speak the Model Context Protocol: tools
// to run commands, to look at and change files, to keep and take back states of them,
// and files as resources. The protocol itself is the official SDK's.
//
// It stands on package client alone, so that the same tools are behind `bailey mcp`
// (standard input and output) and the daemon's /mcp (streamable HTTP), and nothing
// here can do what the API does not let the caller do.
//
// What tools answer is written for models: text that is cut says where to read on, an
// error says what to do next, and what failed inside a sandbox is an answer, not an
// error of the protocol.
//
// It may import the public packages api and client, and the project's root.
package mcp
