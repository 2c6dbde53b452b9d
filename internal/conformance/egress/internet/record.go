package internet

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Event is something that arrived.
type Event struct {
	Kind    string // conn, tls, request, websocket, upgrade, dns, udp, frame
	Host    string // whose address it was sent to; "" for an address of no host
	To      netip.AddrPort
	From    netip.AddrPort
	SNI     string
	Proto   string // HTTP/1.1, HTTP/2.0; the protocol of a frame
	Method  string
	URI     string
	Header  http.Header
	Trailer http.Header
	Text    string // body, query, payload
}

func (e Event) String() string {
	return fmt.Sprintf("%s %s %v %s %s %s %v %.200q", e.Kind, e.Host, e.To, e.SNI, e.Method, e.URI, e.Header, e.Text)
}

// bytes is all of it that the other side chose.
func (e *Event) bytes() []byte {
	var b bytes.Buffer
	b.WriteString(e.SNI + "\n" + e.Method + " " + e.URI + "\n")
	for _, h := range []http.Header{e.Header, e.Trailer} {
		for name, values := range h {
			b.WriteString(name + ": " + strings.Join(values, "\n") + "\n")
		}
	}
	b.WriteString(e.Text)
	return b.Bytes()
}

// Record is all that arrived, in order.
type Record struct {
	mu     sync.Mutex
	events []*Event
	change chan struct{} // closed and replaced at each event
}

func newRecord() *Record { return &Record{change: make(chan struct{})} }

// add notes an event, and gives it back to be added to by more.
func (r *Record) add(e Event) *Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &e
	r.events = append(r.events, p)
	r.notify()
	return p
}

// most bounds what is kept of one stream.
const most = 4 << 20

// more adds to an event's text.
func (r *Record) more(e *Event, text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(e.Text)+len(text) <= most {
		e.Text += string(text)
	}
	r.notify()
}

func (r *Record) update(e *Event, f func(*Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(e)
	r.notify()
}

func (r *Record) notify() {
	close(r.change)
	r.change = make(chan struct{})
}

// Events gives all that has arrived so far.
func (r *Record) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Event, len(r.events))
	for i, e := range r.events {
		list[i] = *e
	}
	return list
}

// Changed is closed when something more arrives.
func (r *Record) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.change
}

// Sightings gives the events that hold the text in any encoding that Forms knows.
func (r *Record) Sightings(text string) []Event {
	forms := Forms(text)
	var list []Event
	for _, e := range r.Events() {
		all := e.bytes()
		lower := bytes.ToLower(all)
		if slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Contains(all, f) || bytes.Contains(lower, f) }) {
			list = append(list, e)
		}
	}
	return list
}

// Forms gives the encodings in which a canary or secret is looked for: plain,
// backwards, hex, base32, and base64 in its three alignments.
func Forms(text string) [][]byte {
	b := []byte(text)
	back := slices.Clone(b)
	slices.Reverse(back)
	forms := [][]byte{b, back, []byte(hex.EncodeToString(b)), []byte(strings.ToUpper(hex.EncodeToString(b)))}
	b32 := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:len(b)/5*5])
	forms = append(forms, []byte(b32), []byte(strings.ToLower(b32)))
	for shift := range 3 {
		// What the bytes before and after share digits with is left out.
		s := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), b...))
		from := []int{0, 2, 3}[shift]
		s = s[from : len(s)-2]
		forms = append(forms, []byte(s), []byte(strings.NewReplacer("+", "-", "/", "_").Replace(s)))
	}
	return forms
}
