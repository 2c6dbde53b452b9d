#include "textflag.h"

// Offsets in Step: nr 0, args 8..48, tolerate 56, out 64, size 72.
// The child uses registers only: it shares the parent's stack, to which the
// parent will return. The kernel preserves all registers but R0.

// func clone(first, end unsafe.Pointer, failed *unsafe.Pointer) (pid uintptr)
TEXT ·clone(SB), NOSPLIT|NOFRAME, $0-32
	MOVD first+0(FP), R19
	MOVD end+8(FP), R20
	MOVD failed+16(FP), R21
	MOVD $0x4111, R0         // CLONE_VM | CLONE_VFORK | SIGCHLD
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	MOVD $220, R8            // clone
	SVC
	CBZ  R0, child
	MOVD R0, pid+24(FP)
	RET

child:
	CMP  R20, R19
	BHS  fail
	MOVD 0(R19), R8
	MOVD 8(R19), R0
	MOVD 16(R19), R1
	MOVD 24(R19), R2
	MOVD 32(R19), R3
	MOVD 40(R19), R4
	MOVD 48(R19), R5
	SVC
	MOVD R0, 64(R19)
	CMN  $4095, R0
	BCC  next
	NEG  R0, R0
	CMP  $64, R0
	BHS  fail
	MOVD 56(R19), R9
	LSR  R0, R9, R9
	TBZ  $0, R9, fail
next:
	ADD  $72, R19, R19
	B    child

fail:
	MOVD R19, 0(R21)
	MOVD $127, R0
	MOVD $94, R8             // exit_group
	SVC
	B    fail
