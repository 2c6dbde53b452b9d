package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// Phase is a part of what Bailey does, in its order: from one of its steps to
// the next.
type Phase struct {
	Name   string        `json:"name"`
	Median time.Duration `json:"median"` // nanoseconds
	Min    time.Duration `json:"min"`
}

// phases is told each step and adds up what lies between. Steps come from one
// goroutine at a time.
type phases struct {
	name  string
	since time.Time
	order []string
	spent map[string][]time.Duration
}

// step ends a phase and begins the one called name; "" begins none.
func (p *phases) step(name string) {
	now := time.Now()
	if p.name != "" {
		if p.spent == nil {
			p.spent = map[string][]time.Duration{}
		}
		if _, ok := p.spent[p.name]; !ok {
			p.order = append(p.order, p.name)
		}
		p.spent[p.name] = append(p.spent[p.name], now.Sub(p.since))
	}
	p.name, p.since = name, now
}

// take gives the phases so far and forgets them.
func (p *phases) take() (list []Phase) {
	for _, name := range p.order {
		s := result.Summarise(p.spent[name])
		list = append(list, Phase{name, s.Median, s.Min})
	}
	*p = phases{}
	return list
}

func writePhases(b *strings.Builder, list []Phase) {
	if len(list) == 0 {
		return
	}
	b.WriteString("  where bailey's time goes:")
	for i, p := range list {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(b, " %s %s", p.Name, result.Human(p.Median))
	}
	b.WriteString("\n")
}
