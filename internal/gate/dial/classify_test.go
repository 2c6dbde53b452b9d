package dial

import (
	"context"
	"net"
	"net/netip"
	"testing"
)

// I1, I2: one address of each range, its first and its last where they matter.
func TestClassify(t *testing.T) {
	for address, want := range map[string]string{
		// public
		"1.1.1.1": "", "8.8.8.8": "", "172.15.255.255": "", "172.32.0.0": "", "100.63.255.255": "", "100.128.0.0": "", "198.17.255.255": "",
		"198.20.0.0": "", "223.255.255.255": "", "192.0.1.0": "", "192.88.98.1": "", "2606:4700::1111": "", "2a00:1450::1": "", "2001:200::1": "",
		"64:ff9b::808:808": "", // 8.8.8.8 by NAT64
		// IPv4
		"0.0.0.0": "this network", "0.255.255.255": "this network", "10.0.0.0": "private", "10.255.255.255": "private", "100.64.0.0": "carrier NAT",
		"100.127.255.255": "carrier NAT", "127.0.0.1": "loopback", "127.255.255.255": "loopback", "169.254.0.1": "link-local", "169.254.255.255": "link-local",
		"172.16.0.0": "private", "172.31.255.255": "private", "192.0.0.1": "IETF protocols", "192.0.2.1": "documentation", "192.88.99.1": "6to4 relay",
		"192.168.0.0": "private", "192.168.255.255": "private", "198.51.100.1": "documentation",
		"203.0.113.1": "documentation", "224.0.0.1": "multicast", "239.255.255.255": "multicast", "240.0.0.0": "reserved", "255.255.255.254": "reserved",
		"255.255.255.255": "broadcast",
		// IPv6
		"::": "unspecified", "::1": "loopback", "::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:8.8.8.8": "", "::7f00:1": "IPv4-compatible",
		"::ffff:0:7f00:1": "IPv4-translated", "64:ff9b::7f00:1": "loopback", "64:ff9b::a00:1": "private", "64:ff9b:1::1": "local NAT64", "100::1": "discard",
		"100:0:0:1::1": "dummy", "2001::1": "Teredo", "2001:1::1": "IETF protocols", "2001:20::1": "IETF protocols", "2001:db8::1": "documentation",
		"2002:7f00:1::": "6to4", "2002:808:808::": "6to4", "3fff::1": "documentation", "5f00::1": "segment routing", "fc00::1": "unique local",
		"fd12:3456::1": "unique local", "fe80::1": "link-local", "fec0::1": "site-local", "ff02::1": "multicast", "4000::1": "not assigned", "1::1": "not assigned",
		"fe80::1%eth0": "scoped",
		// metadata, in all its clothes
		"169.254.169.254": Metadata, "169.254.170.2": Metadata, "169.254.170.23": Metadata, "100.100.100.200": Metadata, "168.63.129.16": Metadata,
		"192.0.0.192": Metadata, "fd00:ec2::254": Metadata, "fd00:ec2::23": Metadata, "fd20:ce::254": Metadata, "::ffff:169.254.169.254": Metadata,
		"64:ff9b::a9fe:a9fe": Metadata, "64:ff9b:1::a9fe:a9fe": Metadata, "2002:a9fe:a9fe::1": Metadata, "::a9fe:a9fe": Metadata,
		"2001:0:a9fe:a9fe::": Metadata, "2001:0:1:1::5601:5601": Metadata, "::ffff:0:a9fe:a9fe": Metadata,
		// the gate
		"198.18.0.0": Gate, "198.18.0.1": Gate, "198.19.255.255": Gate, "fdba:11e4::1": Gate, "fdba:11e4:ffff::": Gate, "64:ff9b::c612:1": Gate,
	} {
		if got := Classify(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %q, not %q", address, got, want)
		}
	}
	if Classify(netip.Addr{}) == Public {
		t.Error("no address is public")
	}
}

// A rule that opens a tunnel's or a translator's range opens only what is named
// behind it as well.
func TestInternalRanges(t *testing.T) {
	d := New(Options{})
	for _, c := range []struct {
		address string
		ranges  []string
		want    string
	}{
		{"10.1.2.3", []string{"10.0.0.0/8"}, ""},
		{"10.1.2.3", []string{"10.1.2.4/32"}, "address_internal"},
		{"127.0.0.1", []string{"127.0.0.1/32"}, ""},
		{"fd12::1", []string{"fd12::/16"}, ""},
		{"2002:a00:1::1", []string{"2002::/16"}, "address_internal"},
		{"2002:a00:1::1", []string{"2002::/16", "10.0.0.0/8"}, ""},
		{"2002:808:808::1", []string{"2002::/16"}, "address_internal"}, // what is behind a tunnel has to be named as well
		{"64:ff9b:1::a00:1", []string{"64:ff9b:1::/48"}, "address_internal"},
		{"::ffff:10.1.2.3", []string{"10.0.0.0/8"}, ""},
		{"169.254.169.254", []string{"169.254.0.0/16"}, "address_metadata"},
		{"100.100.100.200", []string{"100.64.0.0/10"}, "address_metadata"},
		{"fd00:ec2::254", []string{"fd00::/8"}, "address_metadata"},
		{"168.63.129.16", []string{"168.63.129.16/32"}, "address_metadata"},
		{"198.18.5.5", []string{"198.18.0.0/15"}, "address_gate"},
		{"fe80::1%eth0", []string{"fe80::/10"}, "address_internal"},
		{"8.8.8.8", nil, ""},
	} {
		got := ""
		if r := d.check(netip.MustParseAddr(c.address), nil, rule(c.ranges...)); r != nil {
			got = r.Reason
		}
		if got != c.want {
			t.Errorf("%s with %q: %q, not %q", c.address, c.ranges, got, c.want)
		}
	}
}

// What Go itself does, which this package's rules are made for. If a new version
// changes one of these, look at what follows from it.
func TestWhatGoDoes(t *testing.T) {
	for _, text := range []string{"2130706433", "0177.0.0.1", "0x7f.1", "127.1", "127.0.0.1.", "localhost.", "127.0.0.1\x00", "0"} {
		if a, err := netip.ParseAddr(text); err == nil {
			t.Errorf("%q is the address %s", text, a)
		}
	}
	// Go's resolver takes none of them for an address either; it asks a server,
	// and here that fails at once.
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, net.UnknownNetworkError("none")
	}}
	for _, text := range []string{"2130706433", "0177.0.0.1", "0x7f.1", "127.1", "0"} {
		for _, name := range []string{text, text + "."} {
			if list, err := r.LookupNetIP(t.Context(), "ip", name); err == nil {
				t.Errorf("%q has the addresses %v", name, list)
			}
		}
	}
	mapped := netip.MustParseAddr("::ffff:127.0.0.1")
	if netip.MustParsePrefix("127.0.0.0/8").Contains(mapped) {
		t.Error("a prefix of IPv4 holds mapped addresses: Unmap is not needed any more")
	}
	for _, text := range []string{"64:ff9b::7f00:1", "2002:7f00:1::"} {
		if a := netip.MustParseAddr(text); a.IsLoopback() || a.IsPrivate() || !a.IsGlobalUnicast() {
			t.Errorf("%s is known for what it leads to", a)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, a := range []string{"127.0.0.1", "::1", "64:ff9b::7f00:1", "2002:7f00:1::", "8.8.8.8", "fd00:ec2::254"} {
		f.Add(netip.MustParseAddr(a).AsSlice())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		if Classify(a) == Public && !(a.IsGlobalUnicast() && !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast()) && !a.Is4In6() {
			t.Fatalf("%s is public", a)
		}
		if Classify(a) != Classify(a.Unmap()) {
			t.Fatalf("%s is not what it is unmapped", a)
		}
		if a.Is4() { // the same by a translator that makes it reachable
			four := a.As4()
			six := netip.MustParsePrefix("64:ff9b::/96").Addr().As16()
			copy(six[12:], four[:])
			if (Classify(netip.AddrFrom16(six)) == Public) != (Classify(a) == Public) {
				t.Fatalf("%s is not what NAT64 makes of it", a)
			}
		}
	})
}
