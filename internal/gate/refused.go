package gate

import (
	"strconv"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
)

// refusedNames makes one record of the many queries that one refused lookup is:
// a resolver asks for A and AAAA, asks again when it is impatient, and a program
// tries again. The first query is recorded. Further ones for the same name under
// the same policy, within lookupWindow of it, belong to that record; if they are
// more than the twin that every lookup has, a record of kind end says in its
// detail how many there were. It is written when the next name is refused after
// the window, when the policy changes, or when the sandbox ends.
type refusedNames struct {
	mu   sync.Mutex
	seen map[string]*refusedName // by policy and name
}

type refusedName struct {
	seq     int64
	since   time.Time
	queries int
}

const (
	lookupWindow = 10 * time.Second
	// maxWindows bounds the names that are remembered. Where there would be more,
	// one is closed early.
	maxWindows = 1024
	// queriesOfLookup is how many queries one lookup makes: A and AAAA.
	queriesOfLookup = 2
)

// again tells that a refused name has its record, and counts it there.
func (n *refusedNames) again(v *version, r *audit.Egress, seq *int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen[v.digest()+" "+r.Host]
	if seen == nil || time.Since(seen.since) > lookupWindow {
		return false
	}
	seen.queries++
	*seq = seen.seq
	return true
}

// first remembers the record of a refused name, and closes windows that are over.
func (n *refusedNames) first(b *Box, v *version, r *audit.Egress, seq int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[string]*refusedName{}
	}
	now := time.Now()
	for key, seen := range n.seen {
		if len(n.seen) >= maxWindows || now.Sub(seen.since) > lookupWindow {
			n.close(b, key, seen)
		}
	}
	n.seen[v.digest()+" "+r.Host] = &refusedName{seq, now, 1}
}

// flush closes all windows.
func (n *refusedNames) flush(b *Box) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, seen := range n.seen {
		n.close(b, key, seen)
	}
}

func (n *refusedNames) close(b *Box, key string, seen *refusedName) {
	delete(n.seen, key)
	if seen.queries > queriesOfLookup {
		// If it cannot be written, the next act is refused, and says so.
		b.server.options.Audit.Append(&audit.Record{
			Kind: audit.KindEnd, Session: b.session, Sandbox: b.id, Of: seen.seq,
			Detail: map[string]string{"queries": strconv.Itoa(seen.queries)},
		})
	}
}
