package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// A reserve is an identity without a user yet: a range of ids with its
// namespaces, made before a sandbox asks for it. Making one takes the kernel
// about as long as half of a sandbox's whole set-up, and has nothing to do with
// what the sandbox will be. Each is used once.
type reserves struct {
	made chan reserve
	due  chan struct{} // one token for each that is made or being made
	keep bool
}

type reserve struct {
	id  *identity
	err error
}

// MaxWarm bounds how many sandboxes' namespaces are made in advance.
const MaxWarm = 64

// Warm starts to make namespaces for n sandboxes, at most MaxWarm, in the
// background. With keep, each that is used is replaced. It returns at once and
// does nothing for an ordinary user, whose namespaces belong to the sandbox
// itself. Close gives back what was not used.
func (d *Driver) Warm(n int, keep bool) {
	if os.Geteuid() != 0 || d.omit[NoNetNS] || d.omit[NoUserNS] {
		return
	}
	n = min(n, MaxWarm)
	d.pool = &reserves{made: make(chan reserve, n), due: make(chan struct{}, n), keep: keep}
	for range n {
		d.pool.order(d)
	}
}

func (p *reserves) order(d *Driver) {
	p.due <- struct{}{}
	go func() {
		id, err := d.makeReserve()
		p.made <- reserve{id, err}
	}()
}

// takeReserve gives one that was made in advance, waiting for it if it is
// under way, or makes one.
func (d *Driver) takeReserve() (*identity, error) {
	p := d.pool
	if p == nil {
		return d.makeReserve()
	}
	select {
	case <-p.due:
	default:
		return d.makeReserve()
	}
	r := <-p.made
	if p.keep {
		p.order(d)
	}
	if r.err != nil { // it may have been a moment's shortage
		return d.makeReserve()
	}
	return r.id, nil
}

// rangesTaken spreads the search for a range: of many sandboxes of this process
// each begins where the one before has found its own.
var rangesTaken atomic.Int64

func (d *Driver) makeReserve() (*identity, error) {
	ids, err := takeRange(filepath.Join(d.opt.State, "ids"), os.Getpid()+int(rangesTaken.Add(1)))
	if err != nil {
		return nil, err
	}
	id := &identity{ids: ids}
	m := rangeMap(ids.base, 0, 0)
	if d.omit[NoNetNS] {
		id.ns, err = makeUserNS(m, m)
	} else {
		id.ns, id.net, err = makeNamespaces(m, m)
	}
	if err != nil {
		id.close()
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	return id, nil
}

// Close gives back the namespaces that Warm made and nobody used. No sandbox
// is touched. The Driver must not be used by anybody else at that time.
func (d *Driver) Close() {
	p := d.pool
	if p == nil {
		return
	}
	d.pool = nil
	for {
		select {
		case <-p.due:
			if r := <-p.made; r.id != nil {
				r.id.close()
			}
		default:
			return
		}
	}
}
