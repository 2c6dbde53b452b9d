package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// cases are the cases by id.
var cases = map[string]func(c *attempt){}

// attempt is one case at work.
type attempt struct {
	ID  string
	Bad string `json:"-"` // canaries
	// Good is for the twins.
	Good string `json:"-"`

	// Least and Most are how many denials the log should have.
	Least, Most int
	Twins       []twin
	Received    []string // what came in, for the suite to look through
	Notes       []string
	Panic       string        `json:",omitempty"`
	Took        time.Duration // in nanoseconds
}

// twin is an allowed act beside the attack.
type twin struct {
	What  string
	Error string `json:",omitempty"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: attack SEED CASE...")
		os.Exit(2)
	}
	if os.Args[1] == "get" {
		os.Exit(fetch(os.Args[2:]))
	}
	out := json.NewEncoder(os.Stdout)
	for _, id := range os.Args[2:] {
		f := cases[id]
		if f == nil {
			fmt.Fprintln(os.Stderr, "no such case:", id)
			os.Exit(2)
		}
		c := &attempt{ID: id, Bad: plan.Canary(os.Args[1], id, false), Good: plan.Canary(os.Args[1], id, true)}
		c.mark("begin")
		begin := time.Now()
		c.run(f)
		c.Took = time.Since(begin)
		c.mark("end")
		time.Sleep(pause)
		out.Encode(c)
	}
}

func (c *attempt) run(f func(*attempt)) {
	defer func() {
		if p := recover(); p != nil {
			c.Panic = fmt.Sprint(p)
		}
	}()
	f(c)
}

// pause is between cases, for what is only written down when its client has gone on.
const pause = 30 * time.Millisecond

// mark tells the marker host where the case is.
func (c *attempt) mark(what string) {
	s, err := c.plain(plan.Marker, "GET /"+what+"/"+c.ID+" HTTP/1.1\r\nHost: "+plan.Marker+"\r\nConnection: close\r\n\r\n")
	if err != nil || s.status != 200 {
		c.note("mark %s: %v %v", what, s.status, err)
	}
}

// act notes that a denial is due for what comes next.
func (c *attempt) act() { c.Least++; c.Most++ }

// maybe notes that a denial may be recorded for what comes next.
func (c *attempt) maybe() { c.Most++ }

// twin notes how an allowed act ended.
func (c *attempt) twin(what string, err error) {
	t := twin{What: what}
	if err != nil {
		t.Error = err.Error()
	}
	c.Twins = append(c.Twins, t)
}

func (c *attempt) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// received keeps what came in.
func (c *attempt) received(text string) {
	const most = 256 << 10
	c.Received = append(c.Received, text[:min(len(text), most)])
}

// proxy is the gate's, and where it is spoken to.
var proxy = netip.MustParseAddrPort("198.18.0.1:3128")
