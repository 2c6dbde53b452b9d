//go:build linux

package seccomp

import "golang.org/x/sys/unix"

// setUID is the bit S_ISUID of a mode.
const setUID = 0o4000

// makesFile are the flags of open that give its mode a meaning: O_CREAT and
// O_TMPFILE's own bit.
const makesFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// refuseSetUID makes every call that could give a file the set-user-id bit
// fail with EPERM when it would. openat2 has its mode in memory, where a
// filter cannot look: with keepOpenat2 unset it does not exist, and programs
// fall back to openat.
func refuseSetUID(keepOpenat2 bool, acts *[newest + 1]action, rules *ruleSet) {
	without := func(mode uint8) rule {
		return rule{{act: allow, n: 1, conds: [2]cond{{arg: mode, mask: setUID, values: []uint32{0}}}}}
	}
	set := func(act action, calls ...uint16) {
		for _, n := range calls {
			if int(n) <= newest {
				acts[n] = act
			}
		}
	}
	second, third := rules.add(without(1)...), rules.add(without(2)...)
	set(second, append([]uint16{unix.SYS_FCHMOD}, chmodCalls...)...)
	set(third, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_MKNODAT)
	for mode, calls := range map[uint8][]uint16{2: openCalls, 3: {unix.SYS_OPENAT}} {
		if len(calls) == 0 {
			continue
		}
		opens := rules.add(
			clause{act: allow, n: 1, conds: [2]cond{{arg: mode - 1, mask: makesFile, values: []uint32{0}}}},
			without(mode)[0])
		set(opens, calls...)
	}
	if !keepOpenat2 {
		acts[unix.SYS_OPENAT2] = absent
	}
}
