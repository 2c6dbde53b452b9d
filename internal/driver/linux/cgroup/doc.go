// Package cgroup makes the control group of a sandbox: it bounds what the
// sandbox uses, counts it, and can stop and kill everything in it.
//
// Detect looks at the machine once and changes nothing. New makes a group and
// sets its limits, reading each one back: a limit that was asked for is in
// force, or New fails with code limit_unavailable and what to do about it.
// Group.Enter gives descriptors to the child that becomes the sandbox's first
// process; no process is ever moved from outside, because that waits for a
// grace period of the kernel (7 ms).
//
// # Trees
//
// On a machine with the unified hierarchy (version 2) one folder does all. On
// a hybrid one the version 2 tree, which has no controllers there, gives
// membership, kill and freeze, and each limit has a folder in the version 1
// tree of its controller. On a machine with version 1 only, its freezer stands
// in for the version 2 tree.
//
// Groups are made beside or below the caller's own group, so that what bounds
// the caller bounds its sandboxes: in the caller's own group where that is
// allowed, else in the nearest group above where it is. Version 2 does not
// allow a group to have both processes and children with controllers; when the
// caller is alone in its group, or the group is marked as delegated by systemd,
// New moves the group's processes one level down, into bailey.self.
//
// # What it may touch
//
// Folders named bailey-* (and bailey.self) in cgroup file systems, the
// cgroup.subtree_control file of the folder that holds them, and for a victim's
// name the kernel's log. Nothing is made elsewhere.
package cgroup
