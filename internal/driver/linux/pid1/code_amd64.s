//go:build linux

#include "textflag.h"

// System calls used, by their amd64 numbers.
#define SYS_read 0
#define SYS_close 3
#define SYS_sigprocmask 14
#define SYS_ioctl 16
#define SYS_getpid 39
#define SYS_sendto 44
#define SYS_recvfrom 45
#define SYS_clone 56
#define SYS_execve 59
#define SYS_wait4 61
#define SYS_kill 62
#define SYS_fcntl 72
#define SYS_setpgid 109
#define SYS_setsid 112
#define SYS_prctl 157
#define SYS_exit_group 231
#define SYS_ppoll 271
#define SYS_signalfd4 289

// func codeStart() unsafe.Pointer
TEXT ·codeStart(SB), NOSPLIT, $0-8
	LEAQ ·code(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// The program. It is copied out of this binary and runs as a process of its
// own, so it must not refer to any symbol. The kernel enters it with SP at argc.
//
// Registers that keep their meaning: R12 pid of the command, R13 first path to
// try, R14 end of the paths (the empty string), R15 signalfd, BX environment.
// SP points at a block of memory:
//   0 signal set, 8 pollfd[2], 24 wait status, 32 message (8 + 144 bytes),
//   192 buffer of 128 bytes
TEXT ·code(SB), NOSPLIT|NOFRAME, $0
	MOVQ SP, R12
	SUBQ $512, SP
	ANDQ $~15, SP

	// prctl(PR_SET_DUMPABLE, 0)
	MOVQ $4, DI
	XORQ SI, SI
	MOVQ $SYS_prctl, AX
	SYSCALL

	// Find the environment and the end of the paths.
	MOVQ 0(R12), CX
	LEAQ 16(R12)(CX*8), BX
	LEAQ 16(R12), R13
	MOVQ R13, R14
paths:
	MOVQ (R14), AX
	TESTQ AX, AX
	JZ   die                 // no empty string: not our caller
	CMPB (AX), $0
	JEQ  parsed
	ADDQ $8, R14
	JMP  paths
parsed:
	// fcntl(3, F_SETFD, FD_CLOEXEC): the command must not have the lease.
	MOVQ $3, DI
	MOVQ $2, SI
	MOVQ $1, DX
	MOVQ $SYS_fcntl, AX
	SYSCALL
	// Block everything: SIGCHLD is read from a descriptor, the rest is not for us.
	MOVQ $-1, AX
	MOVQ AX, 0(SP)
	MOVQ $0, DI
	MOVQ SP, SI
	XORQ DX, DX
	MOVQ $8, R10
	MOVQ $SYS_sigprocmask, AX
	SYSCALL
	// signalfd4(-1, {SIGCHLD}, 8, SFD_CLOEXEC|SFD_NONBLOCK)
	MOVQ $0x10000, AX
	MOVQ AX, 0(SP)
	MOVQ $-1, DI
	MOVQ SP, SI
	MOVQ $8, DX
	MOVQ $0x80800, R10
	MOVQ $SYS_signalfd4, AX
	SYSCALL
	TESTQ AX, AX
	JS   die
	MOVQ AX, R15
	MOVQ $SYS_setsid, AX
	SYSCALL
	// ioctl(0, TIOCSCTTY, 0); not a terminal: nothing happens
	XORQ DI, DI
	MOVQ $0x540e, SI
	XORQ DX, DX
	MOVQ $SYS_ioctl, AX
	SYSCALL
	// fork: clone(SIGCHLD, 0, 0, 0, 0)
	MOVQ $17, DI
	XORQ SI, SI
	XORQ DX, DX
	XORQ R10, R10
	XORQ R8, R8
	MOVQ $SYS_clone, AX
	SYSCALL
	TESTQ AX, AX
	JS   die
	JZ   command
	MOVQ AX, R12
	// setpgid(child, child), here as well as in the child: whoever is first
	MOVQ R12, DI
	MOVQ R12, SI
	MOVQ $SYS_setpgid, AX
	SYSCALL
	// report Started
	MOVL $1, 32(SP)
	MOVL R12, 36(SP)
	MOVQ $3, DI
	LEAQ 32(SP), SI
	MOVQ $152, DX
	MOVQ $0x4000, R10        // MSG_NOSIGNAL
	XORQ R8, R8
	XORQ R9, R9
	MOVQ $SYS_sendto, AX
	SYSCALL

loop:
	// ppoll({control, signalfd}, 2, NULL, NULL, 0)
	MOVL $3, 8(SP)
	MOVL $1, 12(SP)
	MOVL R15, 16(SP)
	MOVL $1, 20(SP)
	LEAQ 8(SP), DI
	MOVQ $2, SI
	XORQ DX, DX
	XORQ R10, R10
	XORQ R8, R8
	MOVQ $SYS_ppoll, AX
	SYSCALL
	CMPQ AX, $-4             // EINTR
	JEQ  loop
	TESTQ AX, AX
	JS   die
	CMPW 14(SP), $0
	JEQ  children
	// recvfrom(control, buffer, 128, MSG_DONTWAIT)
	MOVQ $3, DI
	LEAQ 192(SP), SI
	MOVQ $128, DX
	MOVQ $0x40, R10
	XORQ R8, R8
	XORQ R9, R9
	MOVQ $SYS_recvfrom, AX
	SYSCALL
	CMPQ AX, $-11            // EAGAIN
	JEQ  children
	CMPQ AX, $-4
	JEQ  children
	TESTQ AX, AX
	JLE  die                 // the owner has gone
	// kill(-command, signal)
	MOVQ R12, DI
	NEGQ DI
	MOVBQZX 192(SP), SI
	MOVQ $SYS_kill, AX
	SYSCALL

children:
	CMPW 22(SP), $0
	JEQ  loop
	MOVQ R15, DI
	LEAQ 192(SP), SI
	MOVQ $128, DX
	MOVQ $SYS_read, AX
	SYSCALL
reap:
	// wait4(-1, &status, WNOHANG|WUNTRACED|WCONTINUED, &usage)
	MOVQ $-1, DI
	LEAQ 24(SP), SI
	MOVQ $11, DX
	LEAQ 40(SP), R10
	MOVQ $SYS_wait4, AX
	SYSCALL
	TESTQ AX, AX
	JLE  loop
	CMPQ AX, R12
	JNE  reap
	MOVL 24(SP), CX
	MOVL CX, 36(SP)
	MOVL $4, 32(SP)          // Continued
	CMPL CX, $0xffff
	JEQ  tell
	MOVL $3, 32(SP)          // Stopped
	MOVL CX, DX
	ANDL $0xff, DX
	CMPL DX, $0x7f
	JEQ  tell
	MOVL $5, 32(SP)          // Ended
tell:
	MOVQ $3, DI
	LEAQ 32(SP), SI
	MOVQ $152, DX
	MOVQ $0x4000, R10
	XORQ R8, R8
	XORQ R9, R9
	MOVQ $SYS_sendto, AX
	SYSCALL
	CMPL 32(SP), $5
	JNE  reap
	XORQ DI, DI
	JMP  exit

command:
	XORQ DI, DI
	XORQ SI, SI
	MOVQ $SYS_setpgid, AX
	SYSCALL
	MOVQ $SYS_getpid, AX
	SYSCALL
	MOVL AX, 24(SP)
	// ioctl(0, TIOCSPGRP, &pid); SIGTTOU is blocked
	XORQ DI, DI
	MOVQ $0x5410, SI
	LEAQ 24(SP), DX
	MOVQ $SYS_ioctl, AX
	SYSCALL
	// sigprocmask(SIG_SETMASK, {})
	MOVQ $0, AX
	MOVQ AX, 0(SP)
	MOVQ $2, DI
	MOVQ SP, SI
	XORQ DX, DX
	MOVQ $8, R10
	MOVQ $SYS_sigprocmask, AX
	SYSCALL
	MOVQ $2, R12             // ENOENT, unless a path gives a better reason
try:
	CMPQ R13, R14
	JAE  failed
	MOVQ (R13), DI
	LEAQ 8(R14), SI
	MOVQ BX, DX
	MOVQ $SYS_execve, AX
	SYSCALL
	NEGQ AX
	ADDQ $8, R13
	CMPQ AX, $2              // ENOENT
	JEQ  try
	CMPQ AX, $20             // ENOTDIR
	JEQ  try
	MOVQ AX, R12
	CMPQ AX, $13             // EACCES: another folder of PATH may have it
	JEQ  try
failed:
	MOVL $2, 32(SP)          // NotStarted
	MOVL R12, 36(SP)
	MOVQ $3, DI
	LEAQ 32(SP), SI
	MOVQ $152, DX
	MOVQ $0x4000, R10
	XORQ R8, R8
	XORQ R9, R9
	MOVQ $SYS_sendto, AX
	SYSCALL
	MOVQ $127, DI
	JMP  exit

die:
	MOVQ $137, DI
exit:
	MOVQ $SYS_exit_group, AX
	SYSCALL
	JMP  exit
	BYTE $0xb1; BYTE $0xa1; BYTE $0x1e; BYTE $0x1e; BYTE $0x0e; BYTE $0x0d; BYTE $0x0f; BYTE $0x1d
