// Package kit makes and opens the file that carries what a virtual machine needs
// beside Bailey's programs: a kernel, a first file system (bailey-boot, bailey-init,
// the kernel's modules), and the monitor with its libraries and firmware, which
// together are the root of the file system that the monitor runs in.
//
// ./scripts/levels makes it of Debian's packages; nothing of them is installed
// as a kernel of the host. It is one file, beside the programs, and is unpacked by
// its digest when it is first used.
package kit
