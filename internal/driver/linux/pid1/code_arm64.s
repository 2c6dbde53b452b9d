//go:build linux

#include "textflag.h"

// System calls used, by their arm64 numbers.
#define SYS_fcntl 25
#define SYS_ioctl 29
#define SYS_read 63
#define SYS_ppoll 73
#define SYS_signalfd4 74
#define SYS_exit_group 94
#define SYS_kill 129
#define SYS_sigprocmask 135
#define SYS_setpgid 154
#define SYS_setsid 157
#define SYS_prctl 167
#define SYS_getpid 172
#define SYS_sendto 206
#define SYS_recvfrom 207
#define SYS_clone 220
#define SYS_execve 221
#define SYS_wait4 260

#define CALL(nr) MOVD $nr, R8; SVC $0

// func codeStart() unsafe.Pointer
TEXT ·codeStart(SB), NOSPLIT, $0-8
	MOVD $·code(SB), R0
	MOVD R0, ret+0(FP)
	RET

// The program; see code_amd64.s for what it does and why, step by step. R19 pid
// of the command, R20 first path to try, R21 end of the paths, R22 signalfd, R23
// environment, R24 the block: 0 signal set, 8 pollfd[2], 24 wait status, 32
// message (8 + 144 bytes), 192 buffer of 128 bytes.
TEXT ·code(SB), NOSPLIT|NOFRAME, $0
	MOVD RSP, R19
	SUB  $512, RSP
	MOVD RSP, R24

	MOVD $4, R0
	MOVD $0, R1
	CALL(SYS_prctl)

	MOVD 0(R19), R1
	ADD  $16, R19, R23
	ADD  R1<<3, R23
	ADD  $16, R19, R20
	MOVD R20, R21
paths:
	MOVD (R21), R0
	CBZ  R0, die
	MOVBU (R0), R0
	CBZ  R0, parsed
	ADD  $8, R21
	B    paths
parsed:
	MOVD $3, R0
	MOVD $2, R1
	MOVD $1, R2
	CALL(SYS_fcntl)
	MOVD $-1, R0
	MOVD R0, 0(R24)
	MOVD $0, R0
	MOVD R24, R1
	MOVD $0, R2
	MOVD $8, R3
	CALL(SYS_sigprocmask)
	MOVD $0x10000, R0
	MOVD R0, 0(R24)
	MOVD $-1, R0
	MOVD R24, R1
	MOVD $8, R2
	MOVD $0x80800, R3
	CALL(SYS_signalfd4)
	TBNZ $63, R0, die
	MOVD R0, R22
	CALL(SYS_setsid)
	MOVD $0, R0
	MOVD $0x540e, R1
	MOVD $0, R2
	CALL(SYS_ioctl)
	MOVD $17, R0
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	CALL(SYS_clone)
	TBNZ $63, R0, die
	CBZ  R0, command
	MOVD R0, R19
	MOVD R19, R0
	MOVD R19, R1
	CALL(SYS_setpgid)
	MOVD $1, R0
	MOVW R0, 32(R24)
	MOVW R19, 36(R24)
	MOVD $3, R0
	ADD  $32, R24, R1
	MOVD $152, R2
	MOVD $0x4000, R3
	MOVD $0, R4
	MOVD $0, R5
	CALL(SYS_sendto)

loop:
	MOVD $3, R0
	MOVW R0, 8(R24)
	MOVD $1, R0
	MOVW R0, 12(R24)
	MOVW R22, 16(R24)
	MOVW R0, 20(R24)
	ADD  $8, R24, R0
	MOVD $2, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	CALL(SYS_ppoll)
	CMN  $4, R0
	BEQ  loop
	TBNZ $63, R0, die
	MOVHU 14(R24), R1
	CBZ  R1, children
	MOVD $3, R0
	ADD  $192, R24, R1
	MOVD $128, R2
	MOVD $0x40, R3
	MOVD $0, R4
	MOVD $0, R5
	CALL(SYS_recvfrom)
	CMN  $11, R0
	BEQ  children
	CMN  $4, R0
	BEQ  children
	CMP  $0, R0
	BLE  die
	NEG  R19, R0
	MOVBU 192(R24), R1
	CALL(SYS_kill)

children:
	MOVHU 22(R24), R1
	CBZ  R1, loop
	MOVD R22, R0
	ADD  $192, R24, R1
	MOVD $128, R2
	CALL(SYS_read)
reap:
	MOVD $-1, R0
	ADD  $24, R24, R1
	MOVD $11, R2
	ADD  $40, R24, R3
	CALL(SYS_wait4)
	CMP  $0, R0
	BLE  loop
	CMP  R19, R0
	BNE  reap
	MOVWU 24(R24), R1
	MOVW R1, 36(R24)
	MOVD $4, R2
	MOVD $0xffff, R3
	CMP  R3, R1
	BEQ  tell
	MOVD $3, R2
	AND  $0xff, R1, R4
	CMP  $0x7f, R4
	BEQ  tell
	MOVD $5, R2
tell:
	MOVW R2, 32(R24)
	MOVD R2, R25
	MOVD $3, R0
	ADD  $32, R24, R1
	MOVD $152, R2
	MOVD $0x4000, R3
	MOVD $0, R4
	MOVD $0, R5
	CALL(SYS_sendto)
	CMP  $5, R25
	BNE  reap
	MOVD $0, R0
	B    exit

command:
	MOVD $0, R0
	MOVD $0, R1
	CALL(SYS_setpgid)
	CALL(SYS_getpid)
	MOVW R0, 24(R24)
	MOVD $0, R0
	MOVD $0x5410, R1
	ADD  $24, R24, R2
	CALL(SYS_ioctl)
	MOVD $0, R0
	MOVD R0, 0(R24)
	MOVD $2, R0
	MOVD R24, R1
	MOVD $0, R2
	MOVD $8, R3
	CALL(SYS_sigprocmask)
	MOVD $2, R19
try:
	CMP  R21, R20
	BHS  failed
	MOVD (R20), R0
	ADD  $8, R21, R1
	MOVD R23, R2
	CALL(SYS_execve)
	NEG  R0, R0
	ADD  $8, R20
	CMP  $2, R0
	BEQ  try
	CMP  $20, R0
	BEQ  try
	MOVD R0, R19
	CMP  $13, R0
	BEQ  try
failed:
	MOVD $2, R0
	MOVW R0, 32(R24)
	MOVW R19, 36(R24)
	MOVD $3, R0
	ADD  $32, R24, R1
	MOVD $152, R2
	MOVD $0x4000, R3
	MOVD $0, R4
	MOVD $0, R5
	CALL(SYS_sendto)
	MOVD $127, R0
	B    exit

die:
	MOVD $137, R0
exit:
	CALL(SYS_exit_group)
	B    exit
	WORD $0x1e1ea1b1
	WORD $0x1d0f0d0e
