package ingress

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/coder/websocket"
)

// insideVariable has this program be the web server in a sandbox.
const insideVariable = "BAILEY_INGRESS_INSIDE"

// seen is what the server in the sandbox was asked.
type seen struct {
	Host, URI string
	Header    http.Header
	Body      int64
}

// serveInside is a web server as people run in sandboxes. Like vite it has one Host
// that it answers to on HTTP and on its WebSocket, and refuses another.
func serveInside() {
	var mu sync.Mutex
	var paths []string
	host := ""
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		mu.Lock()
		paths = append(paths, r.URL.Path)
		host = r.Host
		mu.Unlock()
		w.Header().Add("Set-Cookie", "app=1; Domain=boxes.test; Path=/")
		w.Header().Add("Set-Cookie", cookieName+"=stolen; Path=/")
		json.NewEncoder(w).Encode(seen{r.Host, r.RequestURI, r.Header, n})
	})
	mux.HandleFunc("/paths", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		json.NewEncoder(w).Encode(paths)
	})
	mux.HandleFunc("/hmr", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		known := host
		mu.Unlock()
		if r.Host != known || r.Header.Get("X-Forwarded-Host") != known {
			http.Error(w, fmt.Sprintf("Host is %q here and was %q for the page", r.Host, known), http.StatusForbidden)
			return
		}
		ws, err := websocket.Accept(w, r, nil) // compares Origin with Host
		if err != nil {
			return
		}
		defer ws.CloseNow()
		for {
			kind, b, err := ws.Read(r.Context())
			if err != nil || ws.Write(r.Context(), kind, append([]byte("update "), b...)) != nil {
				return
			}
		}
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	l, err := net.Listen("tcp", "127.0.0.1:3000")
	if err != nil {
		panic(err)
	}
	go func() { // one that does not speak HTTP
		raw, err := net.Listen("tcp", "127.0.0.1:3001")
		if err != nil {
			panic(err)
		}
		for {
			c, err := raw.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	fmt.Fprintln(os.Stderr, http.Serve(l, mux))
}
