//go:build linux

#include "textflag.h"

// Offsets in op: nr 0, args 8..48, indirect 56, out 64, ignore 72, skip 80, size 88.
// The child uses registers only: it shares the parent's stack, which the parent
// will return to. The kernel preserves all registers but R0.

// func rawClone(args unsafe.Pointer, size uintptr, ops unsafe.Pointer, end uintptr, res unsafe.Pointer) (pid uintptr)
TEXT ·rawClone(SB), NOSPLIT|NOFRAME, $0-48
	MOVD args+0(FP), R0
	MOVD size+8(FP), R1
	MOVD ops+16(FP), R19
	MOVD end+24(FP), R20
	MOVD res+32(FP), R21
	MOVD $435, R8            // clone3
	SVC  $0
	CBZ  R0, child
	MOVD R0, pid+40(FP)
	RET

child:
	CMP  R20, R19
	BHS  fell
	MOVD 56(R19), R22
	MOVD 8(R19), R0
	TBZ  $0, R22, a1
	MOVD (R0), R0
a1:
	MOVD 16(R19), R1
	TBZ  $1, R22, a2
	MOVD (R1), R1
a2:
	MOVD 24(R19), R2
	TBZ  $2, R22, a3
	MOVD (R2), R2
a3:
	MOVD 32(R19), R3
	TBZ  $3, R22, a4
	MOVD (R3), R3
a4:
	MOVD 40(R19), R4
	TBZ  $4, R22, a5
	MOVD (R4), R4
a5:
	MOVD 48(R19), R5
	TBZ  $5, R22, call
	MOVD (R5), R5
call:
	MOVD 0(R19), R8
	SVC  $0
	CMN  $4095, R0
	BHS  failed
	MOVD 72(R19), R22
	MOVD $0xfffe, R23        // leaveParent
	CMP  R23, R22
	BNE  stay
	CBNZ R0, fell
stay:
	MOVD 64(R19), R22
	CBZ  R22, next
	MOVD R0, (R22)
next:
	ADD  $88, R19
	B    child

failed:
	NEG  R0, R0
	MOVD 72(R19), R22
	MOVD $0xffff, R23
	CMP  R23, R22
	BEQ  ignored
	CMP  R0, R22
	BEQ  ignored
	MOVD R19, 0(R21)
	MOVD R0, 8(R21)
	MOVD $127, R0
	B    exit
ignored:
	MOVD 80(R19), R22
	MOVD $88, R23
	MUL  R23, R22, R22
	ADD  R22, R19
	B    next

fell:
	MOVD $0, R0
exit:
	MOVD $94, R8             // exit_group
	SVC  $0
	B    exit
