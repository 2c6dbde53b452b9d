// Package driver is the seam between those who want a sandbox and those who
// can build one: a Driver provides one or more isolation levels on one kind of
// host, an Instance is one sandbox of it. Everything here is neutral: no field
// names a system call, a flag or a tool.
//
// Restore and Adopt of docs/architecture.md join the interface with the engine,
// which is the first to call them; the Outlet joins with the gate. Until then a
// sandbox has no network but its own loopback.
package driver
