//go:build linux && race

package engine

// raced: the race detector makes everything some times slower.
const raced = true
