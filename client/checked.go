package client

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"net/http"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// checkedBody is an answer's body that is compared with the hash behind it.
type checkedBody struct {
	resp *http.Response
	h    hash.Hash
}

// checked gives a body that ends without an error only if all of it has arrived.
func checked(resp *http.Response) io.ReadCloser { return &checkedBody{resp, sha256.New()} }

func (c *checkedBody) Read(p []byte) (int, error) {
	n, err := c.resp.Body.Read(p)
	c.h.Write(p[:n])
	if err == nil {
		return n, nil
	}
	if text := c.resp.Trailer.Get(api.HeaderError); text != "" {
		var e bailey.Error
		if json.Unmarshal([]byte(text), &e) == nil {
			return n, &e
		}
	}
	if err != io.EOF {
		return n, bailey.Errorf(bailey.CodeDaemonUnavailable, "read the daemon's answer", "ask again", "%w", err)
	}
	if c.resp.Trailer.Get(api.HeaderSHA256) != hex.EncodeToString(c.h.Sum(nil)) {
		return n, bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "ask again", "what arrived is not what was sent")
	}
	return n, io.EOF
}

func (c *checkedBody) Close() error { return c.resp.Body.Close() }
