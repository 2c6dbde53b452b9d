package inject

import (
	"crypto/rand"

	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// What placeholders are made of, behind the vendor's prefix and the mark.
const (
	alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" // 5.95 bits each
	capitals     = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"                               // 5 bits each, as AWS has them
	// Letters that hold at least 128 bits.
	fewestAlphanumeric = 22
	fewestCapitals     = 26
)

// placeholder makes one: the vendor's prefix, the mark, and random letters, as
// long as the value where that leaves 128 bits. Nothing but prefix and length
// comes from the value.
func placeholder(c *secrets.Current, mark string) string {
	var prefix string
	length := 0
	if c.Value != nil {
		prefix, length = secrets.Prefix(c.Value.Bytes()), min(len(c.Value.Bytes()), 512)
	}
	letters, fewest := alphanumeric, fewestAlphanumeric
	if prefix == "AKIA" || prefix == "ASIA" {
		letters, fewest = capitals, fewestCapitals
	}
	n := max(fewest, length-len(prefix)-len(mark))
	return prefix + mark + random(n, letters)
}

// random gives n letters, each as likely as any other.
func random(n int, letters string) string {
	out := make([]byte, 0, n)
	var buf [64]byte
	fair := 256 - 256%len(letters)
	for len(out) < n {
		_, _ = rand.Read(buf[:]) // it never fails
		for _, b := range buf {
			if int(b) < fair && len(out) < n {
				out = append(out, letters[int(b)%len(letters)])
			}
		}
	}
	return string(out)
}
