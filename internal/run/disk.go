package run

import (
	"github.com/bailey-sandbox/bailey/internal/driver"
)

func (b *builder) watchDisk(in driver.Instance, spec driver.Spec) (stop func()) { return func() {} }
