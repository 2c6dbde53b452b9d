// Package life decides when a sandbox that stays ends, pauses or stops by itself,
// and what keeps it awake. It is pure: it looks at no clock, no process and no
// file; the engine tells it what is so and does what it answers.
//
// The rules, each of which somebody has lost work to elsewhere:
//
//   - A timeout is remembered as it was asked for and counts anew from a start or a
//     resume. Nothing but Extend changes it: no connect, no exec, no list. While a
//     sandbox is paused or stopped it does not count.
//   - A sandbox is idle while no exec runs, nobody holds it, no processor time was
//     used and no byte came or went. Looking at it is no activity.
//   - Idleness never interrupts a running exec. A timeout does, and its end says so.
//   - A lease goes on counting whatever the state: it is about the owner's life, not
//     the sandbox's.
package life
