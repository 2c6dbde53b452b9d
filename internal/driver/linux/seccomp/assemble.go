//go:build linux

package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// action is the answer to a system call: one of the constants, or firstRule +
// the index of a rule in a ruleSet.
type action uint8

const (
	absent    action = iota // ENOSYS
	allow                   // the kernel does it
	refuse                  // EPERM
	kill                    // the process dies by SIGSYS
	firstRule               // a rule over the arguments decides
)

var returns = [firstRule]uint32{
	absent: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS),
	allow:  unix.SECCOMP_RET_ALLOW,
	refuse: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM),
	kill:   unix.SECCOMP_RET_KILL_PROCESS,
}

// cond holds when the low 32 bits of an argument, and-ed with mask unless that
// is zero, are among values.
type cond struct {
	arg    uint8
	mask   uint32
	values []uint32
}

// clause gives act when its first n conditions hold.
type clause struct {
	conds [2]cond
	n     int
	act   action
}

// rule is tried clause by clause; when none holds the call is refused.
type rule []clause

type ruleSet struct {
	rules [12]rule
	n     int
}

func (s *ruleSet) add(r ...clause) action {
	s.rules[s.n] = r
	s.n++
	return firstRule + action(s.n-1)
}

// entry says what happens before numbers are looked at.
type entry struct {
	arch      uint32
	x32       bool // kill calls with the x32 bit
	allowX32  bool // allow them, for a control run
	otherABIs bool // allow calls of other architectures, for a control run
}

// Offsets in struct seccomp_data. Both architectures are little-endian, so an
// argument's low half comes first.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// x32Bit marks the numbers of amd64's x32 interface.
const x32Bit = 0x40000000

const (
	load      = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	and       = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	jump      = unix.BPF_JMP | unix.BPF_JA
	ifEqual   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	ifAtLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	ret       = unix.BPF_RET | unix.BPF_K
)

// program is a classic BPF program that is written from its end to its start:
// all jumps go forward, so every target is known when a jump to it is written.
// A label is the distance of an instruction from the program's end.
type program struct {
	code []unix.SockFilter // last instruction first
	last [firstRule]int    // label of the latest return of each answer, 0 for none
}

func (p *program) emit(code uint16, jt, jf uint8, k uint32) int {
	p.code = append(p.code, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
	return len(p.code)
}

// reach gives the offset of a jump from the next instruction written to the
// label, or false when the eight bits of a condition cannot get there.
func (p *program) reach(label int) (uint8, bool) {
	d := len(p.code) - label
	return uint8(d), d <= 255
}

// returnLabel gives the label of a return of act near enough for the next few
// instructions, writing a new one if there is none.
func (p *program) returnLabel(act action) int {
	if l := p.last[act]; l != 0 && len(p.code)-l < 240 {
		return l
	}
	p.last[act] = p.emit(ret, 0, 0, returns[act])
	return p.last[act]
}

// branch writes "if A op k goto yes else no".
func (p *program) branch(op uint16, k uint32, yes, no int) int {
	for {
		jt, ok := p.reach(yes)
		if !ok {
			yes = p.emit(jump, 0, 0, uint32(len(p.code)-yes))
			continue
		}
		jf, ok := p.reach(no)
		if !ok {
			no = p.emit(jump, 0, 0, uint32(len(p.code)-no))
			continue
		}
		return p.emit(op, jt, jf, k)
	}
}

// condition writes a test that goes on at yes or no.
func (p *program) condition(c cond, yes, no int) int {
	next := no
	for _, v := range slices.Backward(c.values) {
		next = p.branch(ifEqual, v, yes, next)
	}
	if c.mask != 0 {
		next = p.emit(and, 0, 0, c.mask)
	}
	return p.emit(load, 0, 0, offArgs+8*uint32(c.arg))
}

// rule writes r and gives the label of its start.
func (p *program) rule(r rule) int {
	next := p.returnLabel(refuse)
	for _, c := range slices.Backward(r) {
		yes := p.returnLabel(c.act)
		if c.n == 0 {
			next = yes
			continue
		}
		for _, cond := range slices.Backward(c.conds[:c.n]) {
			yes = p.condition(cond, yes, next)
		}
		next = yes
	}
	return next
}

// search writes a binary search for the answer over spans, which are in order
// and without gaps, and gives its label. The number is in A.
func (p *program) search(spans []span, rules []int) int {
	if len(spans) == 1 {
		act := spans[0].act
		if act >= firstRule {
			return rules[act-firstRule]
		}
		return p.returnLabel(act)
	}
	mid := len(spans) / 2
	high := p.search(spans[mid:], rules)
	low := p.search(spans[:mid], rules)
	return p.branch(ifAtLeast, uint32(spans[mid].first), high, low)
}

// assemble gives the program that answers number n with acts[n], and absent
// for those beyond.
func assemble(acts []action, rules *ruleSet, e entry) []unix.SockFilter {
	p := program{code: make([]unix.SockFilter, 0, 224)}

	var starts [len(rules.rules)]int
	for i := range rules.n {
		starts[i] = p.rule(rules.rules[i])
	}
	spans := make([]span, 0, 128)
	for n, act := range acts {
		if n == 0 || spans[len(spans)-1].act != act {
			spans = append(spans, span{first: uint16(n), act: act})
		}
	}
	if spans[len(spans)-1].act != absent {
		spans = append(spans, span{first: uint16(len(acts)), act: absent})
	}
	start := p.search(spans, starts[:])

	if e.x32 || e.allowX32 {
		act := kill
		if e.allowX32 {
			act = allow
		}
		// The number -1 is a call that a tracer has taken out. Nothing runs
		// for it, and the tracer has put the result in place already.
		high := p.branch(ifEqual, 0xffffffff, p.returnLabel(allow), p.returnLabel(act))
		start = p.branch(ifAtLeast, x32Bit, high, start)
	} else {
		start = p.branch(ifEqual, 0xffffffff, p.returnLabel(allow), start)
	}
	other := p.returnLabel(kill)
	if e.otherABIs {
		other = p.returnLabel(allow)
	}
	p.sequence(start)
	p.emit(load, 0, 0, offNumber)
	start = len(p.code)
	p.branch(ifEqual, e.arch, start, other)
	p.emit(load, 0, 0, offArch)
	slices.Reverse(p.code)
	return p.code
}

// sequence makes sure that the next instruction written is followed by the one
// at label.
func (p *program) sequence(label int) {
	if len(p.code) != label {
		p.emit(jump, 0, 0, uint32(len(p.code)-label))
	}
}
