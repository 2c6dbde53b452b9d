package hostview

import (
	"net/netip"
	"strings"
	"testing"
)

// With a name server, the files that resolvers read lead to it and to nothing
// else; without one, no resolver asks anybody.
func TestNames(t *testing.T) {
	for _, tc := range []struct {
		server           netip.Addr
		resolv, nsswitch string
	}{
		{netip.Addr{}, "", "files"},
		{netip.MustParseAddr("198.18.0.1"), "nameserver 198.18.0.1\noptions timeout:2 attempts:2\n", "files dns"},
		{netip.MustParseAddr("fdba:11e4::1"), "nameserver fdba:11e4::1\noptions timeout:2 attempts:2\n", "files dns"},
	} {
		in := inputFor(plant(t, debian), "/usr/bin")
		in.NameServer = tc.server
		v := compute(t, in)
		_, rest, comment := strings.Cut(content(v, "/etc/resolv.conf"), "\n")
		if !comment || rest != tc.resolv || content(v, "/etc/resolv.conf") != string(ResolvConf(tc.server)) {
			t.Errorf("%v: resolv.conf is %q", tc.server, content(v, "/etc/resolv.conf"))
		}
		if !strings.Contains(content(v, "/etc/nsswitch.conf"), "\nhosts: "+tc.nsswitch+"\n") {
			t.Errorf("%v: nsswitch.conf is %q", tc.server, content(v, "/etc/nsswitch.conf"))
		}
	}
}
