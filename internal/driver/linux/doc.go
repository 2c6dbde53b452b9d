// Package linux is the driver of the process and container levels: namespaces,
// mounts, users, capabilities, seccomp, Landlock and cgroups, natively, with no
// external program.
//
// A sandbox is made in one go. Create writes down every step as data (package
// spawn) and a child works through it: it joins its cgroup, collects the host
// folders it may see as detached mounts, builds a new root out of them, leaves
// the host's root, changes to its user, gives up its rights and executes its
// first process. create.go has the whole order; ids.go, root.go, kernel.go (proc
// and dev), outlet.go (the way to the gate), terminal.go, rights.go and wall.go
// its parts; instance.go is the sandbox while it lives.
//
// Started by root, mounts are made as the host's root in namespaces that belong
// to the host, and only then the child enters a user namespace whose ids no
// host user has. So root inside has no power over the mounts, and files that
// the host's root owns, such as those below /proc/sys, are a stranger's. Started
// by an ordinary user, everything happens inside a user namespace of the
// user's own.
//
// The package may touch the kernel, BAILEY_HOME (through paths it is given) and
// cgroups below Bailey's own. It knows nothing of workspaces, policies or
// change sets.
package linux
