// Package pid1 is the first process of a one-shot sandbox: a program of a few
// hundred bytes that starts one command, reaps whatever ends, forwards signals
// and ends the sandbox when its owner has gone.
//
// A Go program as pid 1 would cost a millisecond of start-up and half a
// megabyte of memory. This one is written in assembly in this package, wrapped
// into an ELF file by Image when it is first needed, and executed from a sealed
// memfd, so that no file on the host is its image and nothing inside can change
// it. Sandboxes that stay run bailey-init instead.
//
// The contract:
//
//   - argv is a name, then one or more paths to try in order, then an empty
//     string, then the command's own argv. The environment is the command's.
//   - Descriptor 3 is one end of a SOCK_SEQPACKET pair, Control. The owner holds the other
//     end and nobody else does: when it closes, for whatever reason, pid 1
//     exits and the kernel ends everything in the PID namespace. This is the
//     lease.
//   - Each byte the owner sends is a signal for the command's process group;
//     pid 1 answers with Reports.
//   - If descriptor 0 is a terminal it becomes the controlling terminal of a new session,
//     with the command as its foreground process group. Pid 1 is the session's
//     leader and not the command, since a group whose every parent lies outside
//     its session is orphaned and the kernel would not stop it on ^Z.
//
// Pid 1 makes itself undumpable before anything else runs in the sandbox, so
// that no process inside with the same uid can attach to it, read its memory or
// take its descriptors.
package pid1
