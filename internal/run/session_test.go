package run

import (
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

// What is allowed below what is denied cannot be shown: it is refused, and never
// shown with what lies around it.
func TestPathsThatCannotBeHeld(t *testing.T) {
	for _, c := range []struct {
		s    control.Session
		code bailey.Code
	}{
		{control.Session{DenyRead: []string{"/srv"}, AllowWrite: []string{"/srv/a"}}, bailey.CodeNotAvailable},
		{control.Session{DenyRead: []string{"/srv"}, AllowRead: []string{"/srv/a"}}, bailey.CodeNotAvailable},
		{control.Session{DenyWrite: []string{"/srv"}, AllowWrite: []string{"/srv/a"}}, bailey.CodeNotAvailable},
		{control.Session{DenyRead: []string{"/srv/b"}, AllowRead: []string{"/srv/a"}}, ""},
	} {
		if err := new(Request).boundPaths(c.s, "/work"); bailey.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
}
