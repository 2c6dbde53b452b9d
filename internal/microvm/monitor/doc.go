// Package monitor speaks to a virtual machine's monitor: QEMU's machine protocol, one JSON object a
// line, over a unix socket that may carry descriptors.
//
// The monitor is not trusted: who gets out of the machine is in it. Lines have a bound, and what makes no
// sense ends the conversation.
package monitor
