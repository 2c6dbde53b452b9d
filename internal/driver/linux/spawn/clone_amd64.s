//go:build linux

#include "textflag.h"

// Offsets in op: nr 0, args 8..48, indirect 56, out 64, ignore 72, skip 80, size 88.
// The child uses registers only: it shares the parent's stack, which the parent
// will return to. The kernel preserves all registers but AX, CX and R11.

// func rawClone(args unsafe.Pointer, size uintptr, ops unsafe.Pointer, end uintptr, res unsafe.Pointer) (pid uintptr)
TEXT ·rawClone(SB), NOSPLIT|NOFRAME, $0-48
	MOVQ args+0(FP), DI
	MOVQ size+8(FP), SI
	MOVQ ops+16(FP), R12
	MOVQ end+24(FP), R13
	MOVQ res+32(FP), R15
	MOVQ $435, AX            // clone3
	SYSCALL
	TESTQ AX, AX
	JZ   child
	MOVQ AX, pid+40(FP)
	RET

child:
	CMPQ R12, R13
	JAE  fell
	MOVQ 56(R12), BX
	MOVQ 8(R12), DI
	TESTQ $1, BX
	JZ   a1
	MOVQ (DI), DI
a1:
	MOVQ 16(R12), SI
	TESTQ $2, BX
	JZ   a2
	MOVQ (SI), SI
a2:
	MOVQ 24(R12), DX
	TESTQ $4, BX
	JZ   a3
	MOVQ (DX), DX
a3:
	MOVQ 32(R12), R10
	TESTQ $8, BX
	JZ   a4
	MOVQ (R10), R10
a4:
	MOVQ 40(R12), R8
	TESTQ $16, BX
	JZ   a5
	MOVQ (R8), R8
a5:
	MOVQ 48(R12), R9
	TESTQ $32, BX
	JZ   call
	MOVQ (R9), R9
call:
	MOVQ 0(R12), AX
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JAE  failed
	MOVQ 72(R12), BX
	CMPQ BX, $0xfffe         // leaveParent
	JNE  stay
	TESTQ AX, AX
	JNZ  fell
stay:
	MOVQ 64(R12), BX
	TESTQ BX, BX
	JZ   next
	MOVQ AX, (BX)
next:
	ADDQ $88, R12
	JMP  child

failed:
	NEGQ AX
	MOVQ 72(R12), BX
	CMPQ BX, $0xffff
	JEQ  ignored
	CMPQ BX, AX
	JEQ  ignored
	MOVQ R12, 0(R15)
	MOVQ AX, 8(R15)
	MOVQ $127, DI
	JMP  exit
ignored:
	MOVQ 80(R12), BX
	IMULQ $88, BX
	ADDQ BX, R12
	JMP  next

fell:
	MOVQ $0, DI              // the script ended without execve: a child that only held something
exit:
	MOVQ $231, AX            // exit_group
	SYSCALL
	JMP  exit
