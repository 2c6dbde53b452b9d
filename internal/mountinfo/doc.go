// Package mountinfo reads the kernel's list of mounts, /proc/PID/mountinfo, in
// the format of proc_pid_mountinfo(5). Self reads that file and nothing else;
// Parse touches nothing.
package mountinfo
