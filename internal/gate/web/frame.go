package web

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"io"
)

// Opcodes of WebSocket (RFC 6455, 5.2).
const (
	opContinue = 0
	opText     = 1
	opBinary   = 2
	opClose    = 8
	opPing     = 9
	opPong     = 10
)

// Codes of closing (RFC 6455, 7.4.1).
const (
	closeProtocol = 1002
	closePolicy   = 1008
	closeTooBig   = 1009
	closeFault    = 1011
)

// frame is the head of a frame.
type frame struct {
	fin    bool
	op     byte
	masked bool
	mask   [4]byte
	size   int64
}

// control tells that a frame is no part of a message.
func (f frame) control() bool { return f.op >= opClose }

// closing is why a socket is ended by the gate.
type closing struct {
	code   uint16
	reason string // stable code
	why    string
}

func (e *closing) Error() string { return e.why }

var errFrame = &closing{closeProtocol, "websocket_malformed", "a frame is malformed"}

// readFrame reads a frame's head, strictly: no extension bits, known opcodes,
// short whole control frames, lengths in their shortest form, masked exactly
// when it comes from a client.
func readFrame(r io.Reader, fromClient bool) (f frame, err error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return f, err
	}
	f.fin, f.op = b[0]&0x80 != 0, b[0]&0x0f
	f.masked, f.size = b[1]&0x80 != 0, int64(b[1]&0x7f)
	switch {
	case b[0]&0x70 != 0, f.masked != fromClient, f.op > opPong, f.op > opBinary && f.op < opClose:
		return f, errFrame
	case f.control() && (!f.fin || f.size > 125):
		return f, errFrame
	case f.size == 126:
		if _, err := io.ReadFull(r, b[:2]); err != nil {
			return f, unexpected(err)
		}
		if f.size = int64(binary.BigEndian.Uint16(b[:2])); f.size < 126 {
			return f, errFrame
		}
	case f.size == 127:
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return f, unexpected(err)
		}
		if n := binary.BigEndian.Uint64(b[:]); n < 1<<16 || n >= 1<<63 {
			return f, errFrame
		} else {
			f.size = int64(n)
		}
	}
	if f.masked {
		if _, err := io.ReadFull(r, f.mask[:]); err != nil {
			return f, unexpected(err)
		}
	}
	return f, nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeFrame writes a frame's head. A bufio.Writer keeps its error until Flush.
func writeFrame(w *bufio.Writer, f frame) {
	b := []byte{f.op}
	if f.fin {
		b[0] |= 0x80
	}
	switch {
	case f.size < 126:
		b = append(b, byte(f.size))
	case f.size < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(f.size))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(f.size))
	}
	if f.masked {
		b[1] |= 0x80
		b = append(b, f.mask[:]...)
	}
	w.Write(b)
}

// writeMessage writes a whole frame, masked anew for a server. It changes p.
func writeMessage(w *bufio.Writer, op byte, p []byte, toServer bool) error {
	f := frame{fin: true, op: op, masked: toServer, size: int64(len(p))}
	if toServer {
		rand.Read(f.mask[:])
		xor(p, f.mask, 0)
	}
	writeFrame(w, f)
	w.Write(p)
	return w.Flush()
}

// xor masks or unmasks p, which begins at an offset of its frame.
func xor(p []byte, mask [4]byte, offset int64) {
	for i := range p {
		p[i] ^= mask[(offset+int64(i))&3]
	}
}
