package folder

import (
	"crypto/rand"
	"strings"
)

// idAlphabet is the base32 alphabet of RFC 4648 in lower case: no 0, 1, 8 or
// 9 to mistake for a letter.
const (
	idAlphabet = "abcdefghijklmnopqrstuvwxyz234567"
	idLength   = 10 // 50 random bits
)

// newID gives a fresh run id.
func newID() string {
	var b [idLength]byte
	rand.Read(b[:]) // never fails; see crypto/rand
	for i := range b {
		b[i] = idAlphabet[b[i]&31]
	}
	return string(b[:])
}

func validID(s string) bool {
	return len(s) == idLength && strings.Trim(s, idAlphabet) == ""
}
