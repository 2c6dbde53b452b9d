package internet

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
)

// postgres speaks enough of PostgreSQL's protocol 3.0 (its manual's chapter
// "Frontend/Backend Protocol") for psql -c: no TLS, no password, and every simple
// query is answered with one row that holds its text.
func postgres(c net.Conn) {
	const startTLS, startGSS = 80877103, 80877104
	for {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head[:])
		if n < 8 || n > 10000 {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(n-8)); err != nil {
			return
		}
		if v := binary.BigEndian.Uint32(head[4:]); v != startTLS && v != startGSS {
			break
		}
		c.Write([]byte("N"))
	}
	message := func(kind byte, body string) string {
		return string(kind) + string(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))) + body
	}
	ready := message('Z', "I")
	io.WriteString(c, message('R', "\x00\x00\x00\x00")+message('S', "server_version\x0016.0\x00")+message('S', "client_encoding\x00UTF8\x00")+ready)
	for {
		var head [5]byte
		if _, err := io.ReadFull(c, head[:]); err != nil || head[0] == 'X' {
			return
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n < 4 || n > 1<<20 {
			return
		}
		body := make([]byte, n-4)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		if head[0] != 'Q' {
			continue
		}
		text := strings.TrimRight(string(body), "\x00")
		const textType = 25
		column := "query\x00" + string(make([]byte, 6)) + string(binary.BigEndian.AppendUint32(nil, textType)) + "\xff\xff\xff\xff\xff\xff\x00\x00"
		row := string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text
		fmt.Fprint(c, message('T', "\x00\x01"+column), message('D', "\x00\x01"+row), message('C', "SELECT 1\x00"), ready)
	}
}
