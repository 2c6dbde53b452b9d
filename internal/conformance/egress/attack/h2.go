package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is an HTTP/2 connection that is spoken by hand, a stream at a time.
type h2 struct {
	net.Conn
	framer *http2.Framer
	stream uint32
}

func openH2(host, sni string) (*h2, error) {
	conn, err := dial(host, 443)
	if err != nil {
		return nil, err
	}
	return beginH2(conn, sni)
}

func beginH2(conn net.Conn, sni string) (*h2, error) {
	t := tls.Client(conn, &tls.Config{ServerName: sni, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := t.Handshake(); err != nil {
		conn.Close()
		return nil, err
	}
	if p := t.ConnectionState().NegotiatedProtocol; p != "h2" {
		conn.Close()
		return nil, fmt.Errorf("the protocol is %q", p)
	}
	io.WriteString(t, http2.ClientPreface)
	h := &h2{Conn: t, framer: http2.NewFramer(t, t)}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	const window = 4 << 20
	h.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	h.framer.WriteWindowUpdate(0, window)
	return h, nil
}

// do makes a request in one stream. Each part of the body is a DATA frame; with
// none, the headers end the stream.
func (h *h2) do(method, authority, path string, parts []string, fields ...hpack.HeaderField) (answer, error) {
	if err := h.begin(method, authority, path, len(parts) == 0, fields...); err != nil {
		return answer{}, err
	}
	for i, p := range parts {
		if err := h.framer.WriteData(h.stream, i == len(parts)-1, []byte(p)); err != nil {
			return answer{}, err
		}
	}
	return h.finish()
}

func (h *h2) begin(method, authority, path string, end bool, fields ...hpack.HeaderField) error {
	if h.stream == 0 {
		h.stream = 1
	} else {
		h.stream += 2
	}
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	enc.SetMaxDynamicTableSize(0)
	head := []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: authority}, {Name: ":path", Value: path}}
	for _, f := range append(head, fields...) {
		if err := enc.WriteField(f); err != nil {
			return err
		}
	}
	return h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.stream, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: end})
}

// await reads until the stream's data end with what is wanted.
func (h *h2) await(want string) error {
	got := ""
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.framer.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame:
			return fmt.Errorf("RST_STREAM: %v", f.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Errorf("GOAWAY: %v", f.ErrCode)
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() || f.PseudoValue("status") != "200" {
				return fmt.Errorf("it ended with %v", f.Fields)
			}
		case *http2.DataFrame:
			if got += string(f.Data()); got == want {
				return nil
			}
			if f.StreamEnded() || len(got) > len(want) {
				return fmt.Errorf("%q came back", got)
			}
		}
	}
}

// finish reads until the stream has ended.
func (h *h2) finish() (a answer, err error) {
	a.header = http.Header{}
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return a, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			h.framer.WritePing(true, f.Data)
		case *http2.GoAwayFrame:
			return a, fmt.Errorf("GOAWAY: %v", f.ErrCode)
		case *http2.RSTStreamFrame:
			if f.StreamID == h.stream {
				if a.status != 0 {
					return a, nil
				}
				return a, fmt.Errorf("RST_STREAM: %v", f.ErrCode)
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID != h.stream {
				continue
			}
			if s := f.PseudoValue("status"); s != "" {
				fmt.Sscan(s, &a.status)
			}
			for _, field := range f.RegularFields() {
				a.header.Add(field.Name, field.Value)
			}
			if f.StreamEnded() {
				return a, nil
			}
		case *http2.DataFrame:
			if f.StreamID != h.stream {
				continue
			}
			a.body += string(f.Data())
			if f.StreamEnded() {
				return a, nil
			}
		}
		if len(a.body) > 16<<20 {
			return a, errors.New("too much")
		}
	}
}
