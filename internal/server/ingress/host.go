package ingress

import (
	"net"
	"strconv"
	"strings"
)

// maxLabel is how long a label of a host name may be.
const maxLabel = 63

// Target reads a Host header, PORT-ID.DOMAIN with or without the daemon's own port:
// ref is the id of a sandbox or a name of one that can be part of a host name. domain
// is in lower case. below says that the name is below the domain, whatever it is.
func Target(host, domain string) (port int, ref string, below, ok bool) {
	if domain == "" || len(host) > 300 {
		return 0, "", false, false
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	label, in := strings.CutSuffix(strings.TrimSuffix(strings.ToLower(name), "."), "."+domain)
	if !in {
		return 0, "", false, false
	}
	digits, ref, both := strings.Cut(label, "-")
	if !both || len(label) > maxLabel || !plain(ref) {
		return 0, "", true, false
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != digits { // 0x, +, leading zeros
		return 0, "", true, false
	}
	return int(n), ref, true, true
}

// plain says whether s can end a label of a host name.
func plain(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
