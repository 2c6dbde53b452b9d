package result

import (
	"strings"
	"testing"
)

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target Target
		met    bool
		text   string
	}{
		{AtMost("a", 0.3, 0.3), true, "  a: 0.3, at most 0.3: met\n"},
		{AtMost("a", 0.31, 0.3), false, "  a: 0.31, at most 0.3: MISSED\n"},
		{AtMost("a", 0, 0.3), false, "  a: 0, at most 0.3: MISSED\n"},
		{AtMost("a", -0.1, 0.3), true, "  a: -0.1, at most 0.3: met\n"},
		{AtMost("a", 7, 0), true, "  a: 7\n"},
		{AtLeast("b", 5, 5), true, "  b: 5, at least 5: met\n"},
		{AtLeast("b", 4.9, 5), false, "  b: 4.9, at least 5: MISSED\n"},
		{AtLeast("b", 0, 0.7), false, "  b: 0, at least 0.7: MISSED\n"},
	} {
		var b strings.Builder
		if c.target.Write(&b); b.String() != c.text || c.target.Met != c.met {
			t.Errorf("%q, met %v", b.String(), c.target.Met)
		}
	}
}
