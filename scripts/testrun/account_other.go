//go:build !linux

package main

import (
	"context"
	"errors"
)

// account exists on Linux only; elsewhere the tests run as whoever starts them.
type account struct {
	name, source string
	uid, gid     int
}

func newAccount(context.Context, string) (*account, error) {
	return nil, errors.New("as root, the tests run on Linux only")
}

func (a *account) command() []string   { return nil }
func (a *account) wrapper() string     { return "" }
func (a *account) processes() []string { return nil }
func (a *account) remove() error       { return nil }

func runAs([]string) int { return probeFailed }
