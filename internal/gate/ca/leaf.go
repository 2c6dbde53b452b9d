package ca

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/policy"
)

const (
	// leafLifetime is well under the 398 days that clients accept, and well over
	// what a connection lasts.
	leafLifetime = 60 * 24 * time.Hour
	// renew is the rest of its life at which a certificate is minted anew.
	renew = 20 * 24 * time.Hour
	// kept is how many certificates are kept.
	kept = 1024
	// burst and perSecond bound minting. A handshake costs the sandbox nothing,
	// a signature does cost the gate.
	burst     = 256
	perSecond = 64
)

// ErrBusy is given when a sandbox asks for more new names than the gate mints
// certificates for.
var ErrBusy = errors.New("too many new names in a short time")

// leaves is what was minted.
type leaves struct {
	mu     sync.Mutex
	key    *ecdsa.PrivateKey // of all leaves; it never leaves the process
	id     []byte
	byHost map[policy.Host]*list.Element
	order  *list.List // of *leaf, the last used first
	tokens float64
	filled time.Time
}

type leaf struct {
	host policy.Host
	cert *tls.Certificate
}

func (l *leaves) start(key *ecdsa.PrivateKey) {
	l.key = key
	l.id, _ = keyID(&key.PublicKey) // fails for points that are none only
	l.byHost = map[policy.Host]*list.Element{}
	l.order = list.New()
	l.tokens = burst
}

func (l *leaves) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.key = nil
	clear(l.byHost)
	l.order.Init()
}

// Leaf gives a server certificate for a host: a name, or the address of an
// address rule.
func (a *Authority) Leaf(host policy.Host) (*tls.Certificate, error) {
	return a.leafAt(host, time.Now())
}

func (a *Authority) leafAt(host policy.Host, now time.Time) (*tls.Certificate, error) {
	l := &a.leaves
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byHost[host]; e != nil {
		if c := e.Value.(*leaf).cert; now.Add(renew).Before(c.Leaf.NotAfter) && !now.Before(c.Leaf.NotBefore) {
			l.order.MoveToFront(e)
			return c, nil
		}
		l.order.Remove(e)
		delete(l.byHost, host)
	}
	if l.key == nil {
		return nil, errDestroyed
	}
	if !l.filled.IsZero() {
		l.tokens = min(burst, l.tokens+max(0, now.Sub(l.filled).Seconds())*perSecond)
	}
	l.filled = now
	if l.tokens < 1 {
		return nil, ErrBusy
	}
	l.tokens--
	c, err := a.mint(host, now)
	if err != nil {
		return nil, err
	}
	l.byHost[host] = l.order.PushFront(&leaf{host, c})
	if l.order.Len() > kept {
		last := l.order.Back()
		delete(l.byHost, l.order.Remove(last).(*leaf).host)
	}
	return c, nil
}

// mint makes a certificate. leaves.mu is held.
func (a *Authority) mint(host policy.Host, now time.Time) (*tls.Certificate, error) {
	if host.IsZero() {
		return nil, errors.New("a certificate needs a name")
	}
	signer, err := a.key()
	if err != nil {
		return nil, err
	}
	from, to := now.Add(-skew).UTC(), now.Add(leafLifetime).UTC()
	if from.Before(a.cert.NotBefore) {
		from = a.cert.NotBefore
	}
	if to.After(a.cert.NotAfter) {
		to = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		// Without a subject the alternative name would have to be critical, which
		// some clients do not know.
		Subject:               pkix.Name{Organization: []string{"Bailey"}, CommonName: short(host.String())},
		NotBefore:             from,
		NotAfter:              to,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		SubjectKeyId:          a.leaves.id,
		AuthorityKeyId:        a.cert.SubjectKeyId,
	}
	if addr, ok := host.Addr(); ok {
		template.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		template.DNSNames = []string{host.String()}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.leaves.key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaves.key, Leaf: parsed}, nil
}
