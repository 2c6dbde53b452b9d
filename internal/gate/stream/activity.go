package stream

import "net"

func (s *Server) enter(c *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		s.live = map[*net.TCPConn]uint64{}
	}
	s.live[c] = 0
	s.moved++
}

func (s *Server) leave(c *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, c)
	s.moved++ // whatever it was that nobody has looked at
}

// Activity gives a number that is another one if anything has moved since it was
// last asked for, and how many streams are open. The kernel has counted: nothing is
// added to the way of the bytes.
func (s *Server) Activity() (moved int64, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, before := range s.live {
		if now := bytesOf(c); now > before {
			s.moved += int64(now - before)
			s.live[c] = now
		}
	}
	return s.moved, len(s.live)
}
