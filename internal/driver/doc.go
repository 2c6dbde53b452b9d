// Package driver is the seam between those who want a sandbox and those who
// can build one: a Driver provides one or more isolation levels on one kind of
// host, an Instance is one sandbox of it. Everything here is neutral: no field
// names a system call, a flag or a tool.
//
// An Adopter is a driver whose sandboxes outlive the process that made them, and
// Staying one of these. Restore joins with memory snapshots.
package driver
