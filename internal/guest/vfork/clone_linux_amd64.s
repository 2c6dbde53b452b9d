#include "textflag.h"

// Offsets in Step: nr 0, args 8..48, tolerate 56, out 64, size 72.
// The child uses registers only: it shares the parent's stack, to which the
// parent will return. The kernel preserves all registers but AX, CX and R11.

// func clone(first, end unsafe.Pointer, failed *unsafe.Pointer) (pid uintptr)
TEXT ·clone(SB), NOSPLIT|NOFRAME, $0-32
	MOVQ first+0(FP), R12
	MOVQ end+8(FP), R13
	MOVQ failed+16(FP), R15
	MOVQ $0x4111, DI         // CLONE_VM | CLONE_VFORK | SIGCHLD
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVQ $56, AX             // clone
	SYSCALL
	TESTQ AX, AX
	JZ   child
	MOVQ AX, pid+24(FP)
	RET

child:
	CMPQ R12, R13
	JAE  fail
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	MOVQ 48(R12), R9
	SYSCALL
	MOVQ AX, 64(R12)
	CMPQ AX, $0xfffffffffffff001
	JCS  next
	NEGQ AX
	CMPQ AX, $64
	JAE  fail
	MOVQ 56(R12), BX
	BTQ  AX, BX
	JCC  fail
next:
	ADDQ $72, R12
	JMP  child

fail:
	MOVQ R12, 0(R15)
	MOVQ $127, DI
	MOVQ $231, AX            // exit_group
	SYSCALL
	JMP  fail
