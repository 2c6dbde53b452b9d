// Package landlock describes a Landlock domain for a sandbox: a second wall
// behind namespaces and mounts, that holds when one of those was built wrongly.
//
// As with the system call filter, the result is data. New turns a Config
// into a Plan for the kernel's version of Landlock (ABI): the structures that
// landlock_create_ruleset and landlock_add_rule take, at addresses a child's
// script can use. Where the files are visible to the parent already, by path or
// by the descriptor of a mount, Plan.Create makes the ruleset there, and the
// child makes one call: landlock_restrict_self on the descriptor.
//
// # What a rule binds to
//
// A rule names an inode, not a path and not a mount. When a file is used, the
// kernel walks from it up to the root of the mount namespace, over mount points
// and past any chroot, and gathers the rights of each inode on the way. What
// follows from this, and is tested here:
//
//   - A rule stays with its folder when the mount is moved, when the root is
//     pivoted or changed, and when the folder is bound to other places. A
//     ruleset made in the parent on the descriptor of a detached mount
//     (fsmount, open_tree) holds in the child that attaches it.
//   - A bind mount has the inodes of what it shows: a rule on the host folder
//     and a rule on the bind mount are the same rule. So write rights given to
//     a folder hold wherever else the sandbox can see that folder too; only
//     the read-only flag of a mount tells two views apart.
//   - An overlay has inodes of its own. A rule on a lower or upper folder says
//     nothing about the merged view, and the other way round: the rule has to
//     be made on the overlay's mount.
//   - Rights given to a folder hold for what is mounted below it. A rule on the
//     root is a rule for all: rights are only ever added on the way up, so
//     "read-only except" works, and "writable except" does not.
//
// # What it is good for here
//
//   - Reading and executing everywhere in the sandbox, writing only to the
//     workspace, home, /tmp, /dev and the like: if a mount turns out writable
//     that should not be, or is reached by a way nobody thought of, writing
//     fails with EACCES.
//   - No device nodes, ever: the rights to make them are handled and never
//     given. No ioctl on devices outside /dev.
//   - Signals and abstract unix sockets stay inside the domain, should a pid or
//     network namespace be shared by choice or mistake.
//
// # What it cannot do, and what it costs
//
//   - It is no substitute for the mounts: stat, readlink, chdir, chmod, chown,
//     utime, xattrs and access(2) are not covered by any right, so
//     the existence and metadata of files remain visible, and modes changeable.
//   - Descriptors that are open already keep their rights. What is inherited
//     has to be closed.
//   - Once a file right is handled, the domain cannot mount, unmount, move
//     mounts or pivot. The domain has to be the last step, and a sandbox that is
//     to nest sandboxes (user namespaces allowed) cannot have this wall.
//   - A process can trace, and with SignalScope signal, only processes of its own domain or
//     of domains below it. Two commands that each call landlock_restrict_self are
//     strangers to each other, even in one pid namespace: pid 1 has to enter the
//     domain once, before it starts commands, and a command that is put in
//     from outside belongs to another domain.
//   - Files cannot be moved or linked between folders when the destination has
//     rights that the source lacks (EXDEV): give writable folders the same set.
//
// The package reads and writes nothing but the descriptors it is given and the
// paths of rules, which it opens with O_PATH.
package landlock
