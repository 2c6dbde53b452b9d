// Package nested runs test binaries on another kernel than this machine's: in a
// virtual machine with Debian 12's own kernel, version 2 control groups with every
// controller, root and an ordinary user, by software emulation where the machine
// has nothing better. ./scripts/nested calls it.
//
// The binaries and the programs that tests build are built outside. One disk holds
// the files of a list of Debian packages as this machine has them (packages.txt),
// with their dependencies, and the kernel's modules; it is kept. A second one holds
// the repository, the binaries and a plan of what to run. Package inside is the
// machine's first process and works through the plan; package plan is the wire.
//
// It needs a Debian or what is like it (dpkg), mke2fs, depmod and QEMU; the kernel
// lies where ./scripts/kernel has put it. Nothing of it is in a product.
package nested
