package driver

import "net/netip"

// A cell's card (Cell.Link) and how it is set up: these addresses, and default
// routes to the other end. No name of the gate's has one of them, and none is
// public: they come from ranges that are set aside for documents and for one's own use.
const LinkName = "eth0"

// LinkMTU is the size of the largest packet on the link, in bytes.
const LinkMTU = 1500

// LinkAddr4 and LinkAddr6 are the card's addresses, LinkGate4 and LinkGate6 those
// of the other end.
var (
	LinkAddr4 = netip.MustParsePrefix("192.0.2.2/30")
	LinkGate4 = netip.MustParsePrefix("192.0.2.1/30")
	LinkAddr6 = netip.MustParsePrefix("fdba:11e5::2/126")
	LinkGate6 = netip.MustParsePrefix("fdba:11e5::1/126")
)
