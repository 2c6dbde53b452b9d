//go:build linux

package pid1

const machine = 183 // EM_AARCH64
