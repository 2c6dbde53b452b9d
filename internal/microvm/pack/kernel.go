package pack

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxKernel bounds an unpacked kernel, in bytes.
const maxKernel = 256 << 20

// Vmlinux takes the kernel proper, an ELF file, out of a bzImage
// (Documentation/arch/x86/boot.rst). The monitor enters it directly, which saves
// the emulation of the decompressor.
func Vmlinux(image []byte) ([]byte, error) {
	bad := func(what string) ([]byte, error) { return nil, errors.New("the kernel image: " + what) }
	if len(image) < 0x264 || string(image[0x202:0x206]) != "HdrS" {
		return bad("no header of a bzImage")
	}
	setup := int(image[0x1f1])
	if setup == 0 {
		setup = 4
	}
	from := uint64(setup+1)*512 + uint64(binary.LittleEndian.Uint32(image[0x248:]))
	size := uint64(binary.LittleEndian.Uint32(image[0x24c:]))
	if from+size > uint64(len(image)) || size < 8 {
		return bad("its payload lies outside")
	}
	payload := image[from : from+size]
	var out []byte
	var err error
	switch {
	case bytes.HasPrefix(payload, []byte{0x02, 0x21, 0x4c, 0x18}):
		out, err = unpackLZ4(payload[4:])
	case bytes.HasPrefix(payload, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var r *zstd.Decoder
		if r, err = zstd.NewReader(bytes.NewReader(payload)); err == nil {
			out, err = io.ReadAll(io.LimitReader(r, maxKernel))
			r.Close()
			// Four bytes after the stream are the size, which is no frame.
			if errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
		}
	case bytes.HasPrefix(payload, []byte{0x1f, 0x8b}):
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(payload)); err == nil {
			r.Multistream(false)
			out, err = io.ReadAll(io.LimitReader(r, maxKernel))
		}
	default:
		return bad("a compression that is not known")
	}
	if err != nil {
		return nil, fmt.Errorf("the kernel image: %w", err)
	}
	f, err := elf.NewFile(bytes.NewReader(out))
	if err != nil {
		return nil, fmt.Errorf("the unpacked kernel: %w", err)
	}
	if f.Machine != elf.EM_X86_64 {
		return bad("it is for another processor")
	}
	return out, nil
}

var errLZ4 = errors.New("LZ4: the data make no sense")

// unpackLZ4 unpacks the blocks of LZ4's legacy frame.
func unpackLZ4(in []byte) (out []byte, err error) {
	const blockMax = 8 << 20
	for len(in) >= 4 {
		n := binary.LittleEndian.Uint32(in)
		if uint64(n) > uint64(len(in)-4) { // the kernel's own size, which follows the last block
			if len(in) == 4 {
				return out, nil
			}
			return nil, errLZ4
		}
		if len(in) == 4 {
			return out, nil
		}
		if out, err = lz4Block(out, in[4:4+n], len(out)+blockMax); err != nil {
			return nil, err
		}
		if in = in[4+n:]; len(out) > maxKernel {
			return nil, errLZ4
		}
	}
	return out, nil
}

// lz4Block appends what a block unpacks to, up to max bytes in all.
func lz4Block(out, in []byte, max int) ([]byte, error) {
	start := len(out)
	length := func(n int) (int, bool) {
		if n < 15 {
			return n, true
		}
		for len(in) > 0 {
			b := in[0]
			in = in[1:]
			if n += int(b); b < 255 {
				return n, true
			}
		}
		return 0, false
	}
	for len(in) > 0 {
		token := in[0]
		in = in[1:]
		n, ok := length(int(token >> 4))
		if !ok || n > len(in) || len(out)+n > max {
			return nil, errLZ4
		}
		out = append(out, in[:n]...)
		in = in[n:]
		if len(in) == 0 {
			return out, nil
		}
		if len(in) < 2 {
			return nil, errLZ4
		}
		back := int(binary.LittleEndian.Uint16(in))
		in = in[2:]
		if n, ok = length(int(token & 15)); !ok || back == 0 || back > len(out)-start || len(out)+n+4 > max {
			return nil, errLZ4
		}
		for range n + 4 { // it may overlap with what it makes
			out = append(out, out[len(out)-back])
		}
	}
	return out, nil
}
