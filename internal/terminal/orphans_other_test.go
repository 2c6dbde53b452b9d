//go:build !linux

package terminal

import "testing"

func adoptOrphans() {}

func endOrphans(*testing.T) {}
