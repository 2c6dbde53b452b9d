// Package quota counts what owners have of a daemon's room and decides who gets the
// next free part of it. It is bookkeeping in memory: the engine tells it what
// sandboxes there are, and asks before it makes or wakes one.
//
// The queue is fair between owners: they take turns, whoever they are and however
// much each of them has asked for, and one's own requests are served in their order.
// A request whose turn it is and that does not fit yet is waited for, so that a
// large one is not starved by small ones; only who has used up a quota of their own
// is passed over, as nobody but they can change that.
package quota
