package plan

import (
	"crypto/sha256"
	"encoding/hex"
)

// Canary gives the bytes that a case sends where it must not (good false) or
// where it may (good true): 40 letters and digits, good in a DNS label, that no
// other run has.
func Canary(seed, id string, good bool) string {
	kind := "/bad/"
	if good {
		kind = "/good/"
	}
	h := sha256.Sum256([]byte(seed + kind + id))
	return "c" + hex.EncodeToString(h[:])[:39]
}
