package quota

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey/api"
)

// serve lets those have their turn for whom there is room.
func (b *Book) serve() {
	for {
		r, why := b.next(b.all, b.owners, b.waiting, b.turns)
		if r == nil || why != "" {
			return
		}
		b.leave(r)
		if _, still := b.waiting[r.owner]; still {
			b.turn++
			b.turns[r.owner] = b.turn
		}
		until := b.held[r.id].until
		b.drop(r.id)
		b.take(r.id, r.owner, r.claim, until)
		r.served = true
		close(r.ready)
	}
}

// next gives the request whose turn it is, and what it has to wait for: "" if there
// is room. Owners that have used up their own quota are passed over.
func (b *Book) next(all Claim, owners map[string]Claim, waiting map[string][]*Request, turns map[string]uint64) (*Request, string) {
	order := slices.SortedFunc(maps.Keys(waiting), func(x, y string) int { return cmp.Compare(turns[x], turns[y]) })
	for _, o := range order {
		head := waiting[o][0]
		has := b.held[head.id].claim
		if over(owners[o].minus(has), head.claim, b.quota(o)) == "" {
			return head, over(all.minus(has), head.claim, b.quota(""))
		}
	}
	return nil, ""
}

// place says how many will be served up to and with r and when that may be: it
// lets what is held come free in the order in which it will end by itself, at the
// latest, and plays the queue through.
func (b *Book) place(r *Request, now time.Time) api.QueuePlace {
	type end struct {
		at    time.Time
		owner string
		claim Claim
	}
	var ends []end
	for _, h := range b.held {
		if !h.until.IsZero() {
			ends = append(ends, end{h.until, h.owner, h.claim})
		}
	}
	slices.SortFunc(ends, func(x, y end) int { return x.at.Compare(y.at) })

	all, owners, turns, turn := b.all, maps.Clone(b.owners), maps.Clone(b.turns), b.turn
	waiting := map[string][]*Request{}
	for o, l := range b.waiting {
		waiting[o] = slices.Clone(l)
	}
	why := over(b.owners[r.owner].minus(b.held[r.id].claim), r.claim, b.quota(r.owner))
	switch {
	case why != "":
		why = "its owner's quota is used up: " + why
	default:
		if why = over(b.all.minus(b.held[r.id].claim), r.claim, b.quota("")); why != "" {
			why = "the machine's quota is used up: " + why
		} else {
			why = "others are before it"
		}
	}
	served, at := 0, now
	for {
		n, wait := b.next(all, owners, waiting, turns)
		if n == nil || wait != "" {
			if len(ends) == 0 {
				break
			}
			e := ends[0]
			ends = ends[1:]
			at = latest(at, e.at)
			all, owners[e.owner] = all.minus(e.claim), owners[e.owner].minus(e.claim)
			continue
		}
		served++
		if n == r {
			return place(served, b.sooner(at.Sub(now), served), true, why)
		}
		waiting[n.owner] = waiting[n.owner][1:]
		turn++
		turns[n.owner] = turn
		if len(waiting[n.owner]) == 0 {
			delete(waiting, n.owner)
		}
		more := n.claim.minus(b.held[n.id].claim)
		all, owners[n.owner] = all.plus(more), owners[n.owner].plus(more)
	}
	// Nothing that is held says when it ends. The rest is in the order of turns.
	n := served + b.ahead(r, waiting, turns)
	if d, ok := b.pace(); ok {
		return place(n, d*time.Duration(n), true, why)
	}
	return place(n, 0, false, why)
}

// ahead counts r and those that are served before it if each owner in turn gets one.
func (b *Book) ahead(r *Request, waiting map[string][]*Request, turns map[string]uint64) int {
	round := slices.Index(waiting[r.owner], r)
	n := 0
	for o, l := range waiting {
		n += min(len(l), round)
		if len(l) > round && turns[o] <= turns[r.owner] {
			n++
		}
	}
	return n
}

// pace is how often room came free of late.
func (b *Book) pace() (time.Duration, bool) {
	if len(b.freed) < 2 {
		return 0, false
	}
	return b.freed[len(b.freed)-1].Sub(b.freed[0]) / time.Duration(len(b.freed)-1), true
}

// sooner is the lesser of the latest time and what the pace of late says: most
// sandboxes end before their timeout.
func (b *Book) sooner(latest time.Duration, served int) time.Duration {
	if d, ok := b.pace(); ok {
		return min(latest, d*time.Duration(served))
	}
	return latest
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
