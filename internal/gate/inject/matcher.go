package inject

import (
	"bytes"
	"slices"
)

// matcher finds many patterns at once, in one pass (Aho and Corasick, "Efficient
// string matching", 1975). Of patterns that overlap, the one that begins first
// is found, and of those the longest. It never changes after it is made.
type matcher struct {
	patterns []pattern
	root     [256]int32 // the transitions of the root, all of them
	// pairs has a bit for each two bytes that begin a pattern: most of a text is
	// passed over by it.
	pairs [1 << 16 / 64]uint64
	nodes []node
	edges []edge // sorted by byte within each node
	// longest is the length of the longest pattern, in bytes.
	longest int
}

// pattern is what is looked for.
type pattern struct {
	text  string
	name  string // of the secret; "" a placeholder of somebody else
	plain bool   // as it is, not encoded
	// of writes another text as this one is written; nil changes nothing.
	of func(string) string
}

type node struct {
	first int32 // into matcher.edges
	fail  int32 // the longest proper suffix that is a prefix of a pattern
	match int32 // the longest pattern that ends here, or -1
	depth int32
	edges int16
}

type edge struct {
	on byte
	to int32
}

// newMatcher takes the patterns over. Of equal texts the first counts; one of
// fewer than two bytes is left out.
func newMatcher(patterns []pattern) *matcher {
	m := &matcher{patterns: patterns, nodes: []node{{match: -1}}}
	// While it grows, a node's children are a list.
	type growing struct {
		child, sibling int32
		on             byte
	}
	tree := []growing{{}}
	for i, p := range patterns {
		if len(p.text) < 2 {
			continue
		}
		m.longest = max(m.longest, len(p.text))
		at := int32(0)
		for j := range len(p.text) {
			on, to := p.text[j], tree[at].child
			for to != 0 && tree[to].on != on {
				to = tree[to].sibling
			}
			if to == 0 {
				to = int32(len(tree))
				tree = append(tree, growing{sibling: tree[at].child, on: on})
				tree[at].child = to
				m.nodes = append(m.nodes, node{depth: m.nodes[at].depth + 1, match: -1})
				m.nodes[at].edges++
			}
			at = to
		}
		m.pairs[m.pair(p.text[0], p.text[1])>>6] |= 1 << (m.pair(p.text[0], p.text[1]) & 63)
		if m.nodes[at].match < 0 {
			m.nodes[at].match = int32(i)
		}
	}
	m.edges = make([]edge, 0, len(tree)-1)
	for i := range tree {
		m.nodes[i].first = int32(len(m.edges))
		for to := tree[i].child; to != 0; to = tree[to].sibling {
			m.edges = append(m.edges, edge{tree[to].on, to})
		}
		slices.SortFunc(m.edges[m.nodes[i].first:], func(a, b edge) int { return int(a.on) - int(b.on) })
	}
	for _, e := range m.edgesOf(0) {
		m.root[e.on] = e.to
	}
	// Breadth first: a node's suffix is nearer to the root than the node.
	queue := make([]int32, 1, len(tree))
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range m.edgesOf(at) {
			if at != 0 {
				m.nodes[e.to].fail = m.next(m.nodes[at].fail, e.on)
			}
			if n := &m.nodes[e.to]; n.match < 0 {
				n.match = m.nodes[n.fail].match
			}
			queue = append(queue, e.to)
		}
	}
	return m
}

func (m *matcher) pair(a, b byte) uint { return uint(a)<<8 | uint(b) }

// skip gives the first place from i on where a pattern may begin.
func skip[T string | []byte](m *matcher, text T, i int) int {
	for ; i+1 < len(text); i++ {
		if p := m.pair(text[i], text[i+1]); m.pairs[p>>6]>>(p&63)&1 != 0 {
			return i
		}
	}
	if i < len(text) && m.root[text[i]] == 0 {
		i++
	}
	return i
}

func (m *matcher) edgesOf(at int32) []edge {
	n := &m.nodes[at]
	return m.edges[n.first : n.first+int32(n.edges)]
}

func (m *matcher) next(at int32, b byte) int32 {
	for at != 0 {
		n := &m.nodes[at]
		for _, e := range m.edges[n.first : n.first+int32(n.edges)] {
			if e.on == b {
				return e.to
			}
		}
		at = n.fail
	}
	return m.root[b]
}

// found is one place where a pattern is.
type found struct {
	start, end int
	*pattern
}

// stream searches a text that comes in pieces. It keeps back only bytes that may
// be the beginning of a pattern.
type stream struct {
	m     *matcher
	at    int32
	held  []byte
	maybe found // found, but a longer one may still come; its pattern is nil if there is none
	// hit is called for each pattern, and gives what is put in its place; false
	// stops the stream.
	hit func(*pattern) (with string, goOn bool)
	// stopped is set then: nothing more comes out.
	stopped bool
	// wait is how many bytes behind the last line end wait for more, whatever they
	// are. If only what may begin a pattern waited, then who sends the text and
	// sees what waits would find a value byte by byte.
	wait int
}

// feed takes the next piece and appends to out what is settled, with what was
// found replaced. At the end nothing is kept back.
func (s *stream) feed(out, p []byte, end bool) []byte {
	if s.stopped {
		return out
	}
	buf, i := p, 0
	if len(s.held) > 0 {
		i = len(s.held)
		buf = append(s.held, p...)
	}
	done := 0 // what lies before has been appended to out, or replaced
	for {
		for i < len(buf) {
			if s.at == 0 && s.maybe.pattern == nil {
				if i = skip(s.m, buf, i); i == len(buf) {
					break
				}
			}
			s.at = s.m.next(s.at, buf[i])
			i++
			n := &s.m.nodes[s.at]
			start := i - int(n.depth)
			if s.maybe.pattern != nil && start > s.maybe.start {
				// Nothing longer comes. What follows it is looked at afresh.
				if out, done, i = s.settle(out, buf, done); s.stopped {
					return out
				}
				continue
			}
			if n.match >= 0 {
				pat := &s.m.patterns[n.match]
				if from := i - len(pat.text); s.maybe.pattern == nil || from < s.maybe.start || from == s.maybe.start && i > s.maybe.end {
					s.maybe = found{from, i, pat}
				}
				if n.edges == 0 && s.maybe.start == start {
					if out, done, i = s.settle(out, buf, done); s.stopped {
						return out
					}
				}
			}
		}
		if !end || s.maybe.pattern == nil {
			break
		}
		if out, done, i = s.settle(out, buf, done); s.stopped {
			return out
		}
	}
	keep := len(buf)
	if !end {
		keep -= int(s.m.nodes[s.at].depth)
		if s.maybe.pattern != nil {
			keep = min(keep, s.maybe.start)
		}
		if s.wait > 0 {
			keep = max(done, min(keep, max(len(buf)-s.wait, bytes.LastIndexAny(buf, "\n\r\x00")+1)))
		}
	}
	out = append(out, buf[done:keep]...)
	s.held = append(s.held[:0], buf[keep:]...)
	s.maybe.start -= keep
	s.maybe.end -= keep
	return out
}

// restart makes what comes next a text of its own. What came before must have
// been fed to its end.
func (s *stream) restart() { s.at, s.maybe = 0, found{} }

// settle replaces what was found, and gives where to go on.
func (s *stream) settle(out, buf []byte, done int) ([]byte, int, int) {
	f := s.maybe
	s.at, s.maybe = 0, found{}
	out = append(out, buf[done:f.start]...)
	with, goOn := s.hit(f.pattern)
	s.stopped = !goOn
	return append(out, with...), f.end, f.end
}

// all gives every place in a text, from left to right.
func (m *matcher) all(text string) []found {
	i := skip(m, text, 0)
	if i == len(text) {
		return nil
	}
	var places []found
	at, maybe := int32(0), found{}
	for {
		for i < len(text) {
			if at == 0 && maybe.pattern == nil {
				if i = skip(m, text, i); i == len(text) {
					break
				}
			}
			at = m.next(at, text[i])
			i++
			n := &m.nodes[at]
			if maybe.pattern != nil && i-int(n.depth) > maybe.start {
				places = append(places, maybe)
				at, i, maybe = 0, maybe.end, found{}
				continue
			}
			if n.match >= 0 {
				pat := &m.patterns[n.match]
				if from := i - len(pat.text); maybe.pattern == nil || from < maybe.start || from == maybe.start && i > maybe.end {
					maybe = found{from, i, pat}
				}
			}
		}
		if maybe.pattern == nil {
			return places
		}
		places = append(places, maybe)
		at, i, maybe = 0, maybe.end, found{}
	}
}
