package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// keyVersion changes when the same step is to give other layers than before.
const keyVersion = 1

// key names what a step does to what it stands on. Values are told apart by their
// lengths.
func key(parent, what string, parts ...string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%d:%s%d:%s", keyVersion, len(parent), parent, len(what), what)
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
