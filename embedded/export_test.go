package embedded

import "time"

// Age makes all that is ready older.
func (c *Client) Age(by time.Duration) {
	c.pools.mu.Lock()
	defer c.pools.mu.Unlock()
	for _, p := range c.pools.byKey {
		for i := range p.ready {
			p.ready[i].begun = p.ready[i].begun.Add(-by)
		}
	}
}

// Kill ends the first processes of all that is ready.
func (c *Client) Kill() {
	c.pools.mu.Lock()
	defer c.pools.mu.Unlock()
	for _, p := range c.pools.byKey {
		for _, s := range p.ready {
			s.Instance.Kill("user")
			<-s.Instance.Done()
		}
	}
}
