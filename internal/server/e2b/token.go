package e2b

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

const (
	secretFile = "e2b.key"
	secretSize = 32
)

// Secret gives the key in the data folder that access tokens are derived from, and
// makes it the first time. So tokens stay what they are over pauses and restarts.
func Secret(home string) ([]byte, error) {
	name := filepath.Join(home, secretFile)
	key, err := os.ReadFile(name)
	if err == nil && len(key) == secretSize {
		return key, nil
	}
	wrong := func(err error) error {
		return bailey.Errorf(bailey.CodeStorage, "keep the key of access tokens in "+name, "", "%w", err)
	}
	if err == nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "use "+name, "remove it: all access tokens of sandboxes then change", "it has %d bytes in place of %d", len(key), secretSize)
	}
	if !os.IsNotExist(err) {
		return nil, wrong(err)
	}
	key = make([]byte, secretSize)
	rand.Read(key)
	f, err := os.CreateTemp(home, secretFile+".*")
	if err != nil {
		return nil, wrong(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(key)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return nil, wrong(err)
	}
	return key, nil
}

// token is the access token of a sandbox.
func (s *Server) token(sandbox string) string {
	m := hmac.New(sha256.New, s.opt.Secret)
	m.Write([]byte("envd\x00" + sandbox))
	return "ea_" + hex.EncodeToString(m.Sum(nil))
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// signature is what makes a URL of a file valid; op is read or write.
func signature(token, path, op, user, expires string) string {
	text := path + ":" + op + ":" + user + ":" + token
	if expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// signedFor says whether a URL's parameters were signed with the token.
func signedFor(token, op string, get func(string) string, now time.Time) bool {
	expires := get("signature_expiration")
	if expires != "" {
		at, err := strconv.ParseInt(expires, 10, 64)
		if err != nil || now.Unix() > at {
			return false
		}
	}
	return same(get("signature"), signature(token, get("path"), op, get("username"), expires))
}

// signer finds the sandbox that a signed URL is of, which has no other sign of it.
func (s *Server) signer(ctx context.Context, op string, get func(string) string) (string, bool) {
	q := api.SandboxQuery{Limit: 1000}
	for {
		list, next, err := s.engine.Sandboxes(ctx, nobody, q)
		if err != nil {
			return "", false
		}
		for _, b := range list {
			if signedFor(s.token(b.ID), op, get, time.Now()) {
				return b.ID, true
			}
		}
		if next == "" {
			return "", false
		}
		q.After = next
	}
}

// vendorPrefix begins keys in the form that E2B's clients want.
const vendorPrefix = "e2b_"

// ownKey gives the API key that a client's key means: older SDKs take only e2b_ and
// hexadecimal digits, which is another writing of the same secret.
func ownKey(key string) string {
	digits, ok := strings.CutPrefix(key, vendorPrefix)
	if !ok {
		return key
	}
	secret, err := hex.DecodeString(digits)
	if err != nil {
		return key
	}
	return access.Prefix + strings.ToLower(base32.StdEncoding.EncodeToString(secret))
}
