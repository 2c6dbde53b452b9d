package gate

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/policy"
)

// resolve is what the host's resolver saw of names below a domain: the bytes
// that the sandbox chose, of each name once.
func (n *internet) chosen(below string) (bytes int) {
	seen := map[string]bool{}
	for _, name := range n.asked() {
		if labels, under := strings.CutSuffix(name, "."+below); under && !seen[name] {
			seen[name] = true
			bytes += len(labels)
		}
	}
	return bytes
}

// D2: labels under a wildcard carry data to whoever serves the domain, when the
// gate resolves them. What they carry is bounded, by the rule or by default.
func TestNamesUnderWildcards(t *testing.T) {
	for _, c := range []struct {
		limits string
		budget int
		host   string // %s is what the sandbox chooses
	}{
		{"", wildcardBudget, "%s.ok.test"},
		{", limits: {leak: 300}", 300, "%s.ok.test"},
		{", limits: {leak: 9000}", 9000, "%s.ok.test"},
	} {
		n := newInternet(t, map[string][][]string{"fixed.test": {{"127.0.10.1"}}, "apex.ok.test": {{"127.0.10.1"}}})
		port := n.serve(t, "127.0.10.1:0", func(c net.Conn) { io.Copy(c, c) })
		y := newYard(t, n, parse(t, fmt.Sprintf("name: wild, hosts: ['**.ok.test', fixed.test, apex.ok.test], protocol: tcp, ports: ['%d']%s", port, c.limits)))
		label := strings.Repeat("x", 50)
		refused := 0
		for i := range 200 {
			name := fmt.Sprintf(c.host, fmt.Sprintf("%03d%s.%s", i, label, label))
			for range 2 { // a name that is known already carries nothing
				conn := y.dialName(t, name, port)
				io.Copy(io.Discard, conn)
			}
		}
		for _, r := range y.acts() {
			if r.Reason == policy.ReasonLimitLeak && r.Decision == "deny" && r.Rule == "wild" {
				refused++
			}
		}
		if got := n.chosen("ok.test"); got > c.budget || got < c.budget-150 {
			t.Errorf("%q: %d bytes reached the resolver", c.limits, got)
		}
		if passed := c.budget / 104; refused != 2*(200-passed) || len(y.acts()) != 400 {
			t.Errorf("%q: %d of %d records are refusals", c.limits, refused, len(y.acts()))
		}
		// Names that the rule has itself cost nothing, used up or not.
		for _, name := range []string{"fixed.test", "apex.ok.test"} {
			conn := y.dialName(t, name, port)
			fmt.Fprint(conn, "x")
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
