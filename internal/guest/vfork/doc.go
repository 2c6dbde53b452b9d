// Package vfork starts a child of bailey-init by a prepared list of system
// calls: the child shares the parent's memory until it executes, runs a few
// machine instructions that touch no stack, and calls nothing.
//
// It differs from package internal/driver/linux/spawn, which builds sandboxes
// from outside, in what a process inside one must be content with: clone(2),
// because the sandbox's filter answers clone3 with ENOSYS; no pidfd; a list of
// programs to try in turn, as execvp(3) does, with the rights of the child;
// and no reaping, because the first process of a sandbox reaps everything in
// one place.
//
// Linux on amd64 and arm64 only.
package vfork
