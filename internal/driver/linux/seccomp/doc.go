// Package seccomp makes the system call filter of a sandbox.
//
// The filter is data: Filter returns a classic BPF program as the kernel wants
// it in struct sock_fprog. Nothing here loads it; the child that becomes the
// sandbox's first process does, with one seccomp(SECCOMP_SET_MODE_FILTER)
// call after no_new_privs is set and as the last step before exec.
//
// # What the filter allows
//
// The base is the default profile of moby (Docker), module
// github.com/moby/profiles/seccomp, with the capabilities a sandbox keeps
// (of those, the profile looks at CAP_SYS_CHROOT only, which enables chroot:
// package managers and image builders need it, and leaving a chroot leads no
// further than the sandbox's own root). From that base this package takes
// away what an agent's work does not need and what has been a way out before;
// Protections lists every item by name. It adds one thing that moby lacks:
// personality(ADDR_NO_RANDOMIZE), which debuggers and the thread sanitizers
// use on themselves, and which is reset by set-user-id programs.
//
// ptrace stays allowed, as in moby: the process id namespace bounds whom it
// can reach, and the processes of Bailey inside a sandbox are not dumpable.
//
// # Answers
//
// A refused call fails with EPERM. clone3 fails with ENOSYS, because its flags
// lie in memory where a filter cannot look, so that the C library falls back
// to clone. So does every number that is newer than the profile, or not in use:
// programs probe for those and have a fallback for ENOSYS only. A call made
// through another architecture's entry (i386 on amd64, AArch32 on arm64) or
// with the x32 bit kills the process: no legitimate program of the sandbox
// does that.
//
// # How it is built
//
// The tables zprofile_*.go are generated from moby's module by go generate,
// for amd64 and arm64, and a test fails when they are stale. Filter turns them
// into a binary search over ranges of numbers with the same answer, which is
// both short (loading costs the kernel time in proportion to length and to the
// longest path) and quick. Arguments are compared in their low 32 bits only,
// because the kernel itself truncates each argument that is compared here to
// an int: a 64-bit comparison would let 0x100005412 pass where 0x5412 is
// refused (CVE-2019-10063).
//
// The package touches nothing: no files, no process state.
package seccomp

//go:generate go run ./gen
