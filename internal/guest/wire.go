package guest

import (
	"bytes"
	"encoding/binary"
)

// The lowest layer: a byte stream in which one sequence, mark, cannot occur by
// accident. mark+markReset starts a conversation anew; mark+markStuffed is how
// a mark that is really data is sent. So an end that was cut off in the middle
// of a frame can be found again whatever the data was, and no process inside
// can forge a reset through its output.
//
// No proper prefix of mark is also its suffix (its first byte occurs once), so
// a mark is found even right after a part of another one.
var mark = [8]byte{0xF7, 'b', 'a', 'i', 'l', 'e', 'y', 0x1E}

const (
	markStuffed = 0x00
	markReset   = 0x01
)

// A frame is headerSize bytes, a payload and frameEnd. Its first and last byte
// do not occur in mark: so a mark never spans two frames, and a frame whose
// payload ends like the start of a mark is complete without the byte after it.
const (
	frameStart = 0xB5
	frameEnd   = 0xB6
	headerSize = 12
)

// frame is one message. payload is valid only until the next frame is read.
type frame struct {
	typ     frameType
	nfds    int
	req     uint32
	payload []byte
}

// beginFrame appends a header whose length endFrame fills in.
func beginFrame(b []byte, typ frameType, nfds int, req uint32) []byte {
	b = append(b, frameStart, byte(typ), byte(nfds), 0)
	b = binary.LittleEndian.AppendUint32(b, req)
	return append(b, 0, 0, 0, 0)
}

// endFrame completes the frame that starts at b[at] and stuffs it.
func endFrame(b []byte, at int) []byte {
	binary.LittleEndian.PutUint32(b[at+8:], uint32(len(b)-at-headerSize))
	b = append(b, frameEnd)
	i := bytes.Index(b[at:], mark[:])
	if i < 0 {
		return b
	}
	rest := append([]byte(nil), b[at:]...)
	b = b[:at]
	for i >= 0 {
		b = append(b, rest[:i+len(mark)]...)
		b = append(b, markStuffed)
		rest = rest[i+len(mark):]
		i = bytes.Index(rest, mark[:])
	}
	return append(b, rest...)
}

// appendReset appends the sequence that makes the other end start anew.
func appendReset(b []byte) []byte { return append(append(b, mark[:]...), markReset) }

// decoder turns received bytes into frames. It starts, and goes on after
// anything that makes no sense, by discarding all up to the next reset.
type decoder struct {
	max     int  // bytes of the largest payload accepted
	lost    bool // discarding until a reset
	raw     []byte
	plain   []byte
	onFrame func(frame) error // an error means that the frame made no sense
	onReset func()
	onLost  func(why string) // called once each time the stream stops making sense
}

func newDecoder(max int) *decoder { return &decoder{max: max, lost: true} }

// feed takes the next received bytes.
func (d *decoder) feed(p []byte) {
	d.raw = append(d.raw, p...)
	in := d.raw
	for {
		i := bytes.Index(in, mark[:])
		if i < 0 {
			keep := partialMark(in)
			d.take(in[:len(in)-keep])
			in = in[len(in)-keep:]
			break
		}
		if i+len(mark) == len(in) { // what the mark means has not arrived
			d.take(in[:i])
			in = in[i:]
			break
		}
		switch in[i+len(mark)] {
		case markStuffed:
			d.take(in[:i+len(mark)])
			in = in[i+len(mark)+1:]
		case markReset:
			d.take(in[:i])
			d.plain, d.lost = nil, false
			d.onReset()
			in = in[i+len(mark)+1:]
		default:
			d.take(in[:i])
			d.lose("a mark that is neither data nor a reset")
			in = in[i+len(mark):]
		}
	}
	d.raw = append(d.raw[:0], in...)
	if cap(d.raw) > maxChunk && len(d.raw) == 0 {
		d.raw = nil
	}
}

// partialMark gives how many bytes at the end of b may be the start of a mark.
func partialMark(b []byte) int {
	from := max(0, len(b)-len(mark)+1)
	i := bytes.LastIndexByte(b[from:], mark[0])
	if i < 0 || !bytes.HasPrefix(mark[:], b[from+i:]) {
		return 0
	}
	return len(b) - from - i
}

func (d *decoder) lose(why string) {
	if !d.lost {
		d.lost, d.plain = true, nil
		d.onLost(why)
	}
}

// take takes bytes that have been unstuffed and hands out the frames they
// complete.
func (d *decoder) take(p []byte) {
	if d.lost || len(p) == 0 {
		return
	}
	in := p
	if len(d.plain) > 0 {
		d.plain = append(d.plain, p...)
		in = d.plain
	}
	for len(in) >= headerSize {
		n := int(binary.LittleEndian.Uint32(in[8:]))
		if in[0] != frameStart || in[3] != 0 || in[2] > maxFrameFDs || n > d.max || n < 0 {
			d.lose("a frame header that makes no sense")
			return
		}
		if len(in) < headerSize+n+1 {
			break
		}
		if in[headerSize+n] != frameEnd {
			d.lose("a frame without its end")
			return
		}
		f := frame{frameType(in[1]), int(in[2]), binary.LittleEndian.Uint32(in[4:]), in[headerSize : headerSize+n : headerSize+n]}
		in = in[headerSize+n+1:]
		if err := d.onFrame(f); err != nil {
			d.lose(err.Error())
			return
		}
		if d.lost { // onFrame gave the conversation up
			return
		}
	}
	if len(in) == 0 {
		if d.plain = d.plain[:0]; cap(d.plain) > maxChunk {
			d.plain = nil
		}
		return
	}
	d.plain = append(d.plain[:0], in...)
}
