// Package stay holds tests of sandboxes that stay, from the command line to the
// kernel: real programs, keeper, daemon and gate, as root and as an ordinary user.
package stay
