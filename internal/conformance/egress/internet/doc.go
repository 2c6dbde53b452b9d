// Package internet is a whole internet for tests: every address there is, in a
// network namespace beside "the host", which is one without any other way out.
//
//	host namespace                      internet namespace
//	100.64.7.2, fd64:7::2  ── veth ──   all other addresses of both families
//	where bailey runs                   name server, web servers, sink
//
// In the internet's namespace every address is local (any-address routes), so
// whatever leaves the host arrives, be it for 8.8.8.8, 169.254.169.254 or
// 10.0.0.1, and is recorded: connections and requests by the servers, every frame
// by a packet socket. The names, addresses and certificates are [plan]'s; the
// host's resolver configuration and its certificate bundle are replaced inside the
// namespaces by mounts. So the program under test is the one that people get, with
// its real tables of addresses: nothing is switched off for the test.
//
// Only tests import it.
package internet
