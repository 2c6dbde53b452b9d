package listen

import (
	"crypto/tls"
	"strings"
	"sync"
	"time"
)

// maxBelow is how many own certificates are kept; with more all are made anew.
const maxBelow = 1000

// below makes certificates by the own authority for names directly below a domain.
type below struct {
	domain string
	ca     tls.Certificate

	mu   sync.Mutex
	made map[string]*tls.Certificate
}

// get gives no certificate for another name, so that the daemon's own is taken.
func (b *below) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(hello.ServerName)
	if !isBelow(name, b.domain) {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.made[name]; c != nil {
		return c, nil
	}
	c, err := issue(b.ca, []string{name}, time.Now())
	if err != nil {
		return nil, err
	}
	if b.made == nil || len(b.made) >= maxBelow {
		b.made = map[string]*tls.Certificate{}
	}
	b.made[name] = &c
	return &c, nil
}

// isBelow says whether a name is one label and a domain.
func isBelow(name, domain string) bool {
	label, in := strings.CutSuffix(strings.ToLower(name), "."+domain)
	return domain != "" && in && label != "" && len(label) <= 63 && !strings.ContainsAny(label, ".*/\\ ")
}
