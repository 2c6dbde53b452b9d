// Package lifebench is `bailey bench lifecycle`: it measures sandboxes that stay, from
// create to delete, as a program sees them that speaks to the daemon.
//
// The daemon is the real one: keeper, daemon and gate as processes, with a data
// folder of their own, asked by package client over the unix socket. crun gets the
// same root file system, limits and protections, and is started in the cheapest way
// there is. Subjects take turns, so that what else the machine does meets all of
// them: ratios of one run say something, times of a busy machine do not. Every
// measure has a share of the time that all may take together, and makes as many
// turns as fit into it; how many is part of the result.
//
// It touches a temporary folder below the data folder's cache, which it removes, and
// ends what it started, also when it is interrupted.
package lifebench
