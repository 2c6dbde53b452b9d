package hostview

import "net/netip"

// ResolvConf gives the content of /etc/resolv.conf (resolv.conf(5)) for a
// sandbox whose names are answered at server; with the zero Addr nobody
// answers. It is the same at every level.
//
// There is one server only, and it is on the sandbox's own loopback: an answer comes at
// once or not at all. A second address of it would be asked again after each
// refusal by glibc and Go, and at the same time by musl. The options bound the wait for a
// gate that is away: two seconds with musl, which divides them among its
// attempts, and four with glibc and Go.
func ResolvConf(server netip.Addr) []byte {
	if !server.IsValid() {
		return []byte("# There is no name server inside this sandbox.\n")
	}
	return []byte("# The gate answers. No name that its policy does not know goes any further.\n" +
		"nameserver " + server.String() + "\noptions timeout:2 attempts:2\n")
}

// nsswitch gives the content of /etc/nsswitch.conf: everything comes from
// files, and names of hosts, with a server, from there.
func nsswitch(server netip.Addr) string {
	hosts := "files"
	if server.IsValid() {
		hosts = "files dns"
	}
	return "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nhosts: " + hosts + "\nnetworks: files\n" +
		"protocols: files\nservices: files\nethers: files\nrpc: files\nnetgroup: files\n"
}
