package policy

// Leak counts the bytes of a request's path and query that the sandbox could
// choose: all of the query, and of the path what wildcards of the rule stand
// for; all of it where the rule says nothing of paths.
func (r *Rule) Leak(q Request) int64 { return r.leak(&q) }

func (r *Rule) leak(q *Request) int64 {
	var n int64
	for k, values := range q.Query {
		n += int64(len(k))
		for _, v := range values {
			n += int64(len(v))
		}
	}
	for i := range r.paths {
		if r.paths[i].matches(q.Path) {
			return n + int64(max(0, len(q.Path)-r.paths[i].fixed()))
		}
	}
	return n + int64(len(q.Path))
}

// fixed counts the bytes that every path has that fits.
func (p *pathPattern) fixed() int {
	n := 0
	for _, s := range p.segments {
		n += 1 + len(s.literal)
		for _, piece := range s.glob {
			n += len(piece)
		}
	}
	return n
}

// Chosen counts the bytes of a name that the rule's wildcards stand for, and so
// the sandbox could choose; 0 where the rule has the name itself, or not at all.
// limits.leak bounds them together with what Leak counts.
func (r *Rule) Chosen(h Host) int64 {
	if r == nil {
		return 0
	}
	least := 0
	for i := range r.hosts {
		p := &r.hosts[i]
		if !p.matches(h) {
			continue
		}
		n := len(h.name) - len(p.name.name) - 1
		if p.wild == exact {
			return 0
		}
		if least == 0 || n < least {
			least = n
		}
	}
	return int64(least)
}
