package linux

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

type cgroupHost struct{}

type group struct{}

func (d *Driver) newGroup(spec driver.Spec) (*group, error) { return &group{}, nil }
func (g *group) enter() ([]int, spawn.Options, error) {
	return nil, spawn.Options{Cgroup: -1}, nil
}
func (g *group) bounds(string) bool                                  { return false }
func (g *group) judge(e bailey.End, l bailey.Limits) bailey.End      { return e }
func (g *group) freeze(context.Context, bool) error                  { return nil }
func (g *group) stats() (driver.Stats, error)                        { return driver.Stats{}, nil }
func (g *group) remove() error                                       { return nil }
