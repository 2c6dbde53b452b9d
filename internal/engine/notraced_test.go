//go:build linux && !race

package engine

// raced: see raced_test.go.
const raced = false
