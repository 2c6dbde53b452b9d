//go:build linux

package pid1

const machine = 62 // EM_X86_64
