package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TestEventsAreFlushed: each event of a stream arrives before the next is sent.
func TestEventsAreFlushed(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		next := make(chan bool)
		w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			rw.WriteHeader(200)
			rw.(http.Flusher).Flush()
			for i := 0; <-next; i++ {
				fmt.Fprintf(rw, "data: %d\n\n", i)
				rw.(http.Flusher).Flush()
			}
		})
		resp, err := w.client(h2).Get("https://ok.test/")
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(resp.Body)
		for i := range 3 {
			next <- true
			line, err := r.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("%q %v", line, err)
			}
			r.ReadString('\n')
		}
		next <- false
		io.Copy(io.Discard, r)
		resp.Body.Close()
	}
}

// TestClientThatLeaves: the request to the server ends when the sandbox's does.
func TestClientThatLeaves(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		left := make(chan struct{})
		w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(left)
		})
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://ok.test/", nil)
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := w.client(h2).Do(req); err == nil {
			t.Error("there was an answer")
		}
		select {
		case <-left:
		case <-time.After(20 * time.Second):
			t.Fatal("the server still waits")
		}
		w.log.ended(t, w.log.acts()[0].Seq)
	}
}

// block is what large bodies are made of: of a length that fits no buffer.
var block = func() []byte {
	b := make([]byte, 65521)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

// noise gives left bytes and sums them up.
type noise struct {
	left, at int64
	sum      hash.Hash32
}

func (n *noise) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	p = p[:copy(p[:min(int64(len(p)), n.left)], block[n.at:])]
	n.at = (n.at + int64(len(p))) % int64(len(block))
	n.left -= int64(len(p))
	n.sum.Write(p)
	return len(p), nil
}

// TestLargeBodies: 100 MB each way, unharmed, counted, with memory that does not
// grow with them.
func TestLargeBodies(t *testing.T) {
	const size = 100 << 20
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
			sum := crc32.NewIEEE()
			if r.Method == "GET" {
				rw.Header().Set("Trailer", "X-Sum")
				io.Copy(rw, &noise{left: size, sum: sum})
				rw.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum(nil)))
				return
			}
			io.Copy(sum, r.Body)
			fmt.Fprintf(rw, "%x", sum.Sum(nil))
		})
		c := w.client(h2)
		var peak atomic.Uint64
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					if m.HeapInuse > peak.Load() {
						peak.Store(m.HeapInuse)
					}
				}
			}
		}()
		req, _ := http.NewRequest("GET", "https://ok.test/", nil)
		req.Header.Set("X-Stream", "1")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		sum := crc32.NewIEEE()
		if n, err := io.Copy(sum, resp.Body); n != size || err != nil {
			t.Fatal(n, err)
		}
		if got := fmt.Sprintf("%x", sum.Sum(nil)); got != resp.Trailer.Get("X-Sum") {
			t.Errorf("%s, trailer %v", got, resp.Trailer)
		}
		sum = crc32.NewIEEE()
		req, _ = http.NewRequest("POST", "https://ok.test/", &noise{left: size, sum: sum})
		req.Header.Set("X-Stream", "1")
		if resp, err = c.Do(req); err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); string(b) != fmt.Sprintf("%x", sum.Sum(nil)) {
			t.Errorf("%s", b)
		}
		close(stop)
		acts := w.log.acts()
		if o := w.log.ended(t, acts[0].Seq); o.Received != size {
			t.Errorf("received %d", o.Received)
		}
		if o := w.log.ended(t, acts[1].Seq); o.Sent != size {
			t.Errorf("sent %d", o.Sent)
		}
		if peak.Load() > 64<<20 {
			t.Errorf("the heap had %d MB", peak.Load()>>20)
		}
	}
}

// bytesCodec passes gRPC messages as bytes.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}
func (bytesCodec) Name() string { return "bytes" }

// TestGRPC: unary and bidirectional calls, trailers, and a denial as a status.
func TestGRPC(t *testing.T) {
	w := newWorld(t, "version: 1\negress:\n  rules:\n    - {name: rpc, hosts: [rpc.test], methods: [POST], paths: [/echo/*]}\n")
	l := listen(t)
	config := w.serverTLS("rpc.test")
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.ForceServerCodec(bytesCodec{}),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			s.SetTrailer(metadata.Pairs("x-end", "here"))
			for {
				var b []byte
				if err := s.RecvMsg(&b); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
				if string(b) == "fail" {
					return status.Error(codes.DataLoss, "as asked")
				}
				if err := s.SendMsg(&b); err != nil {
					return err
				}
			}
		}))
	go srv.Serve(l)
	defer srv.Stop()
	w.resolve("rpc.test:443", l.Addr().String())
	conn, err := grpc.NewClient("passthrough:///rpc.test:443",
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: w.trust(), ServerName: "rpc.test"})),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return w.connect("rpc.test:443"), nil }),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	in, out := []byte("hello"), []byte(nil)
	var trailer metadata.MD
	if err := conn.Invoke(ctx, "/echo/Unary", &in, &out, grpc.Trailer(&trailer)); err != nil || string(out) != "hello" || len(trailer["x-end"]) != 1 {
		t.Fatalf("%v %q %v", err, out, trailer)
	}
	in = []byte("fail")
	if err := conn.Invoke(ctx, "/echo/Unary", &in, &out); status.Code(err) != codes.DataLoss {
		t.Errorf("%v", err)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/echo/Both")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		m := fmt.Appendf(nil, "message %d", i)
		if err := stream.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&out); err != nil || !bytes.Equal(out, m) {
			t.Fatalf("%q %v", out, err)
		}
	}
	stream.CloseSend()
	if err := stream.RecvMsg(&out); err != io.EOF {
		t.Fatal(err)
	}
	err = conn.Invoke(ctx, "/forbidden/Unary", &in, &out)
	if status.Code(err) != codes.PermissionDenied || !bytes.Contains([]byte(err.Error()), []byte("denied: POST")) {
		t.Errorf("%v", err)
	}
}

const allowSockets = "version: 1\negress:\n  rules:\n    - {name: ws, hosts: [ws.test], websocket: true}\n"

// TestWebSocket: messages of every size both ways, counted; compression is not
// agreed on.
func TestWebSocket(t *testing.T) {
	for _, secrets := range []*fakeSecrets{nil, {}} {
		w := newWorldWith(t, allowSockets, secrets.orNil())
		s := w.site("ws.test:443", true, func(rw http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(rw, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover, Subprotocols: []string{"b"}})
			if err != nil {
				return
			}
			c.SetReadLimit(1 << 22)
			for {
				kind, b, err := c.Read(r.Context())
				if err != nil {
					return
				}
				if c.Write(r.Context(), kind, b) != nil {
					return
				}
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c, resp, err := websocket.Dial(ctx, "wss://ws.test/chat", &websocket.DialOptions{
			HTTPClient: w.client(false), CompressionMode: websocket.CompressionContextTakeover, Subprotocols: []string{"a", "b"}})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("Sec-Websocket-Extensions") != "" || s.last().Header.Get("Sec-Websocket-Extensions") != "" || c.Subprotocol() != "b" {
			t.Errorf("%v", resp.Header)
		}
		c.SetReadLimit(1 << 22)
		total := int64(0)
		for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 1 << 19} {
			m := bytes.Repeat([]byte("m"), n)
			if err := c.Write(ctx, websocket.MessageText, m); err != nil {
				t.Fatal(n, err)
			}
			if _, b, err := c.Read(ctx); err != nil || !bytes.Equal(b, m) {
				t.Fatal(n, len(b), err)
			}
			total += int64(n)
		}
		if err := c.Close(websocket.StatusNormalClosure, "done"); err != nil {
			t.Error(err)
		}
		rec := w.log.acts()[0]
		if o := w.log.ended(t, rec.Seq); rec.Kind != "websocket" || o.Status != 101 || o.Received < total || o.Sent < total || o.Error != "" {
			t.Errorf("%s %+v", rec.Kind, o)
		}
	}
}

// TestWebSocketSecrets: messages are looked into both ways, and a refusal
// closes the socket with its reason.
func TestWebSocketSecrets(t *testing.T) {
	w := newWorldWith(t, allowSockets, &fakeSecrets{})
	w.site("ws.test:443", true, func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			c.Write(r.Context(), kind, append(b, " "+string(b)...))
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://ws.test/", &websocket.DialOptions{HTTPClient: w.client(false)})
	if err != nil {
		t.Fatal(err)
	}
	c.Write(ctx, websocket.MessageText, []byte("use PLACEHOLDER"))
	if _, b, err := c.Read(ctx); err != nil || string(b) != "use [scrubbed] use [scrubbed]" {
		t.Errorf("%q %v", b, err)
	}
	c.Write(ctx, websocket.MessageText, []byte("FOREIGN"))
	if _, _, err = c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("%v", err)
	}
	if o := w.log.ended(t, w.log.acts()[0].Seq); o.Error != "foreign_credential" || o.Scrubbed != 2 {
		t.Errorf("%+v", o)
	}
}
