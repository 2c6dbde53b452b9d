package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// webSocket sends a text to a WebSocket that says everything back.
func webSocket(host, path, text string, heard func(string)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return dial(host, 443) },
		TLSClientConfig: &tls.Config{RootCAs: roots()},
	}}
	c, _, err := websocket.Dial(ctx, "wss://"+host+path, &websocket.DialOptions{HTTPClient: client, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return err
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		return err
	}
	_, back, err := c.Read(ctx)
	if heard != nil {
		heard(string(back))
	} else if err == nil && string(back) != text {
		return fmt.Errorf("%q came back", back)
	}
	return err
}
