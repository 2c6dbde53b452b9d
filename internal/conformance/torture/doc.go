// Package torture works many sandboxes at once while the daemon and the gate are
// killed again and again, and compares what is left with a model: no sandbox, file,
// exec byte or audit record may be lost or doubled, and nothing may be left on the
// host. The suite runs it for a while; `make torture` for ten minutes.
package torture
