// Package agenttools serves the tools that models of vendors were trained on, with the
// vendors' own names and inputs, over a sandbox: JSON in, JSON out, one object a line.
//
// Anthropic: bash (one shell whose folder and variables stay between calls) and the
// text editor. OpenAI: shell (commands, each alone) and apply_patch (one operation on
// one file, all or nothing).
//
// It stands on package client alone: nothing here can do what the API does not let the
// caller do. What fails inside a sandbox is an answer for the model, never the end of
// the server. Everything that comes from a model or a sandbox is taken for hostile.
//
// It may import the public packages api and client, and the project's root.
package agenttools
