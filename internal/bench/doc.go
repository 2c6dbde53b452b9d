// Package bench is `bailey bench`: it measures Bailey and others at the same
// work, on this machine, in one run.
//
// Neutral means: the subjects of a measure take turns, so that what else the
// machine does meets all of them; every one gets the same protections as far as
// it has them, and what each had is part of the result; others are started in
// the cheapest way there is, without a shell between; who is not installed is
// listed as not measured. Numbers are medians and 95th percentiles, and ratios
// of medians.
//
// It touches a temporary folder below the data folder's cache, which it
// removes, and starts the programs it measures.
package bench
