//go:build linux && (amd64 || arm64)

package spawn

import (
	"syscall"
	"unsafe"
)

// rawClone calls clone3. In the child it runs ops and never returns.
//
//go:noescape
func rawClone(args unsafe.Pointer, size uintptr, ops unsafe.Pointer, end uintptr, res unsafe.Pointer) (pid uintptr)

// entersyscall and exitsyscall tell the scheduler that this thread is away, as
// package syscall does around every blocking call: the parent waits for its
// child to execute, and other goroutines go on meanwhile.
//
//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// clone must not grow its stack between entersyscall and exitsyscall.
//
//go:nosplit
//go:norace
func clone(args *cloneArgs, ops *op, n uintptr, res *result) (uintptr, syscall.Errno) {
	entersyscall()
	r := rawClone(unsafe.Pointer(args), unsafe.Sizeof(*args), unsafe.Pointer(ops),
		uintptr(unsafe.Pointer(ops))+n*unsafe.Sizeof(*ops), unsafe.Pointer(res))
	exitsyscall()
	if r > ^uintptr(4095) {
		return 0, syscall.Errno(-r)
	}
	return r, 0
}
