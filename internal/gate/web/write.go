package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
)

// coalesce is up to which length a body of a server is waited for, to send it
// together with its head.
const coalesce = 32 << 10

// write writes the answer of an exchange and finishes it. keep tells that the
// connection goes on.
func (h *h1) write(x *exchange, req *head, keep bool) (err error) {
	resp := x.answer
	defer resp.Body.Close()
	var received int64
	defer func() {
		if act.Caught(recover()) {
			err = act.Fault
		}
		if x.a != nil {
			x.finish(received, err)
		}
	}()
	received, err = h.writeAnswer(resp, req, keep, x.remains())
	return err
}

// writeAnswer writes an answer, a short one that is there all at once.
func (h *h1) writeAnswer(resp *http.Response, req *head, keep bool, remains *remainder) (received int64, err error) {
	if h.ctx.Err() != nil { // the sandbox's way ends: no answer is given that nobody has decided
		return 0, h.ctx.Err()
	}
	w := h.w
	none := req.method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	chunked := !none && resp.ContentLength < 0 && req.minor == 1
	if !none && resp.ContentLength < 0 && !chunked {
		keep = false // its end is the connection's
	}
	w.WriteString("HTTP/1.1 ")
	status := strconv.AppendInt(w.AvailableBuffer(), int64(resp.StatusCode), 10)
	w.Write(status)
	w.WriteByte(' ')
	w.WriteString(http.StatusText(resp.StatusCode))
	w.WriteString("\r\n")
	writeFields(w, resp.Header)
	switch {
	case chunked:
		w.WriteString("Transfer-Encoding: chunked\r\n")
		if len(resp.Trailer) > 0 {
			names := make([]string, 0, len(resp.Trailer))
			for name := range resp.Trailer {
				names = append(names, name)
			}
			slices.Sort(names)
			fmt.Fprintf(w, "Trailer: %s\r\n", strings.Join(names, ", "))
		}
	case resp.ContentLength >= 0 && resp.StatusCode != http.StatusNoContent && !(none && resp.ContentLength == 0):
		w.WriteString("Content-Length: ")
		w.Write(strconv.AppendInt(w.AvailableBuffer(), resp.ContentLength, 10))
		w.WriteString("\r\n")
	}
	if !keep {
		w.WriteString("Connection: close\r\n")
	}
	w.WriteString("\r\n")
	if none {
		return 0, client(w.Flush())
	}
	if remains == nil {
		if err := w.Flush(); err != nil {
			return 0, client(err)
		}
	}
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		// A chunk's size is written before it, so that it goes out as one record.
		n, err := resp.Body.Read(buf[:])
		if n > 0 {
			received += int64(n)
			if resp.ContentLength >= 0 && received > resp.ContentLength {
				return received, errAnswer
			}
			if chunked {
				w.Write(strconv.AppendInt(w.AvailableBuffer(), int64(n), 16))
				w.WriteString("\r\n")
			}
			w.Write(buf[:n])
			if chunked {
				w.WriteString("\r\n")
			}
			if remains.coming() && !(err == io.EOF && chunked) {
				if ferr := w.Flush(); ferr != nil {
					return received, client(ferr)
				}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return received, err
		}
	}
	if resp.ContentLength > received {
		return received, io.ErrUnexpectedEOF
	}
	if chunked {
		w.WriteString("0\r\n")
		writeFields(w, resp.Trailer)
		w.WriteString("\r\n")
	}
	return received, client(w.Flush())
}

// errAnswer is a server's body that is longer than it said.
var errAnswer = coded("upstream_protocol")

// client marks an error as the sandbox's connection's.
func client(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(errClient, err)
}

// fieldWriter is what fields are written to.
type fieldWriter interface {
	io.StringWriter
	io.ByteWriter
}

// unframed are fields that the gate writes itself.
var unframed = map[string]bool{"Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Trailer": true}

// writeFields writes fields. A value that would end its line is left out.
func writeFields(w fieldWriter, h http.Header) {
	for name, values := range h {
		if unframed[name] || !validToken(name) {
			continue
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				continue
			}
			w.WriteString(name)
			w.WriteString(": ")
			w.WriteString(v)
			w.WriteString("\r\n")
		}
	}
}
