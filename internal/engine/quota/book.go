package quota

import (
	"slices"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Book is who has what, and who waits. Its methods may be called by any number of
// goroutines at once.
type Book struct {
	quota func(owner string) api.Quota // "" is all owners together

	mu      sync.Mutex
	held    map[string]holding // by sandbox
	owners  map[string]Claim   // sums of held
	all     Claim
	waiting map[string][]*Request // by owner, each in its order
	turns   map[string]uint64     // of owners that wait: the least is next
	turn    uint64
	freed   []time.Time // when room came free last, the oldest first
}

type holding struct {
	owner string
	claim Claim
	until time.Time // when it will end by itself; zero: not known
}

// Request is somebody who waits. Ready is closed once what was asked for has been
// set aside for it.
type Request struct {
	Ready  <-chan struct{}
	ready  chan struct{}
	id     string
	owner  string
	claim  Claim
	served bool
}

// NewBook gives an empty book. quota is asked each time, so that a changed
// configuration holds at once (Recheck lets those go on whom it gives room); with ""
// it gives the bounds of all owners together. nil is no bounds.
func NewBook(quota func(owner string) api.Quota) *Book {
	if quota == nil {
		quota = func(string) api.Quota { return api.Quota{} }
	}
	return &Book{quota: quota, held: map[string]holding{}, owners: map[string]Claim{}, waiting: map[string][]*Request{}, turns: map[string]uint64{}}
}

// Ask sets the claim aside for a sandbox, in place of what it has, if there is room
// and nobody waits whose turn is before. If not it gives a Request that waits, with
// its place. A claim that is greater than a whole quota is an error.
func (b *Book) Ask(id, owner string, c Claim, now time.Time) (*Request, api.QueuePlace, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range []struct {
		of    string
		quota api.Quota
	}{{"its owner's", b.quota(owner)}, {"the machine's", b.quota("")}} {
		if why := over(Claim{}, c, q.quota); why != "" {
			return nil, api.QueuePlace{}, bailey.Errorf(bailey.CodeQuotaExceeded, "have a sandbox as large as that", "ask for less, or for a greater quota",
				"it would never fit into %s quota: %s", q.of, why)
		}
	}
	ready := make(chan struct{})
	r := &Request{Ready: ready, ready: ready, id: id, owner: owner, claim: c}
	if len(b.waiting[owner]) == 0 {
		b.turn++
		b.turns[owner] = b.turn
	}
	b.waiting[owner] = append(b.waiting[owner], r)
	b.serve()
	if r.served {
		return r, api.QueuePlace{}, nil
	}
	return r, b.place(r, now), nil
}

// Cancel takes a request that is not wanted any more out of the queue. One that was
// served already is left: Set gives back what was set aside for it.
func (b *Book) Cancel(r *Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.served {
		b.leave(r)
		b.serve()
	}
}

// Place says where a request stands; false once it has been served or cancelled.
func (b *Book) Place(r *Request, now time.Time) (api.QueuePlace, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.served || !slices.Contains(b.waiting[r.owner], r) {
		return api.QueuePlace{}, false
	}
	return b.place(r, now), true
}

// Set says what a sandbox has, whatever the quotas are: it exists. until is when it
// will end by itself, zero if that is not known.
func (b *Book) Set(id, owner string, c Claim, until, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.held[id].claim
	b.drop(id)
	if c != (Claim{}) {
		b.take(id, owner, c, until)
	}
	if less(c, was) {
		b.gave(now)
		b.serve()
	}
}

// Recheck lets those go on who now have room, after quotas have changed.
func (b *Book) Recheck() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serve()
}

// Used is what an owner has, "" all together.
func (b *Book) Used(owner string) Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	if owner == "" {
		return b.all
	}
	return b.owners[owner]
}

// Waiting is how many wait.
func (b *Book) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.waiting {
		n += len(l)
	}
	return n
}

func (b *Book) take(id, owner string, c Claim, until time.Time) {
	b.held[id] = holding{owner, c, until}
	b.owners[owner] = b.owners[owner].plus(c)
	b.all = b.all.plus(c)
}

func (b *Book) drop(id string) {
	h, ok := b.held[id]
	if !ok {
		return
	}
	delete(b.held, id)
	b.all = b.all.minus(h.claim)
	if rest := b.owners[h.owner].minus(h.claim); rest.Sandboxes == 0 && rest.Disk == 0 && rest.Running == 0 {
		delete(b.owners, h.owner) // and with it what rounding has left of its processors
	} else {
		b.owners[h.owner] = rest
	}
	if len(b.held) == 0 {
		b.all = Claim{}
	}
}

// leave takes a request out of its owner's line.
func (b *Book) leave(r *Request) {
	line := slices.DeleteFunc(b.waiting[r.owner], func(w *Request) bool { return w == r })
	if len(line) == 0 {
		delete(b.waiting, r.owner)
		delete(b.turns, r.owner)
		return
	}
	b.waiting[r.owner] = line
}

// less says that c gives something back of what was.
func less(c, was Claim) bool {
	return c.Sandboxes < was.Sandboxes || c.Running < was.Running || c.CPUs < was.CPUs || c.Memory < was.Memory || c.Disk < was.Disk
}

// gave notes that room came free.
func (b *Book) gave(now time.Time) {
	b.freed = append(b.freed, now)
	if len(b.freed) > 16 {
		b.freed = b.freed[1:]
	}
}
