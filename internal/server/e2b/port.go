package e2b

import (
	"net/http"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// port leads a request to a server in the sandbox. E2B's ports are open to everybody
// who knows the name; so are those of sandboxes of this front, from the first request
// that finds a server on, unless their owner has exposed them as private. What a
// policy does not let be exposed stays closed.
func (c *call) port(port int) {
	refuse := func(why string) {
		f := fail(http.StatusBadGateway, why)
		f.Sandbox, f.Port = c.box.ID, port
		f.write(c.w)
	}
	if f := c.asleep(); f != nil {
		f.write(c.w)
		return
	}
	if host, _, ok := parseLabel(firstLabel(c.r.Host)); c.s.opt.Ports == nil || !ok || host != port {
		refuse("Bailey has nothing of its own at this port, and leads to servers of sandboxes by PORT-ID.DOMAIN only: give the daemon e2b.domain, or expose the port with `bailey port`")
		return
	}
	exposed := slices.ContainsFunc(c.box.Ports, func(p api.Port) bool { return p.Port == port })
	if !exposed && c.box.Labels[templateLabel] == "" {
		refuse("the sandbox was not made by this front: expose the port with `bailey port`")
		return
	}
	if !exposed {
		conn, err := c.s.engine.DialPort(c.ctx(), c.box.ID, port)
		if err != nil {
			if bailey.CodeOf(err) == bailey.CodePortClosed {
				refuse("The sandbox is running but port is not open")
				return
			}
			failed(err).write(c.w)
			return
		}
		conn.Close()
		if _, err := c.s.engine.Expose(c.ctx(), c.who, c.box.ID, api.PortRequest{Port: port, Public: true}); err != nil {
			failed(err).write(c.w)
			return
		}
	}
	c.s.opt.Ports.ServeHTTP(c.w, c.r)
}
