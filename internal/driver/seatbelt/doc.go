// Package seatbelt provides the process level on macOS: a command of the
// host's own tools under a Seatbelt profile, generated from the same
// driver.Spec that the Linux driver gets, and started through
// /usr/bin/sandbox-exec.
//
// What macOS cannot do, and what happens instead:
//
//   - There are no namespaces: paths inside are the host's paths. A place whose
//     target is not its source is reached at its source, and the environment
//     and working folder are rewritten to that.
//   - There is no overlay: a copy-on-write place is a copy, made with
//     clonefile(2), which on APFS costs neither time nor space for data.
//   - There is no process namespace: processes of the same user can be seen to
//     exist, but neither inspected nor signalled. What a command leaves behind is
//     found by its ancestry when the sandbox ends; a process that detached
//     itself completely lives on, inside its profile.
//   - Limits of memory, processes, processors, disk and IO cannot be enforced
//     for a tree of processes, and are refused as limit_unavailable.
//   - ^Z does not stop the command, which leads a session of its own.
//
// Profile and Translate are pure and are tested on every system; the driver
// itself is built on macOS only, and no automatic test has run it there.
//
// The profile language has no public specification. What this package relies
// on: rules are tried in order and the last one that matches decides; a
// pattern such as file-read* covers the operations that begin with it; paths
// are compared after symbolic links are resolved; a string longer than about a
// thousand bytes does not compile.
package seatbelt
