// Package confine takes this process's rights away: it becomes a user of its
// own (as root), opens no file but a few, writes to the folders it is told and
// nowhere else, starts no program and looks into no process. It is what the
// gate does after it has read its secrets and before it reads the first byte
// that a sandbox wrote.
//
// The walls, outermost first: no_new_privs; no core dump and no tracing by
// processes of the same user; ids of its own without groups or capabilities
// (started by root); Landlock; an allow list of system calls, for all threads.
// A wall that cannot be built is an error, but for Landlock on a kernel that has
// none: that is said in the report.
package confine
