package linux

import "github.com/bailey-sandbox/bailey/internal/driver"

func (b *builder) landlock(spec driver.Spec) {}
