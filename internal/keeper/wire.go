package keeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// One message is one packet of a SOCK_SEQPACKET socket: JSON, and as many
// descriptors as it has names. What does not fit is split into several.
const (
	maxMessage = 32 << 10 // bytes of a packet
	maxFiles   = 64       // descriptors of a packet; the kernel's own bound is 253
	maxID      = 64       // bytes of a sandbox's id
	maxName    = 200      // bytes of a descriptor's name
)

// op is what a request asks for.
type op string

const (
	opPut     op = "put"     // keep the descriptors
	opGet     op = "get"     // give them
	opList    op = "list"    // say what is kept
	opDrop    op = "drop"    // let go
	opStatus  op = "status"  // say how it ended
	opUpgrade op = "upgrade" // start the daemon anew from the program on disk
)

// request is what the daemon asks.
type request struct {
	N     uint64   `json:"n"` // the answer has the same
	Op    op       `json:"op"`
	ID    string   `json:"id,omitempty"`
	Pid   int      `json:"pid,omitempty"`
	Names []string `json:"names,omitempty"` // of the descriptors, or those asked for
}

// answer is what the keeper answers, in one packet or several.
type answer struct {
	N      uint64        `json:"n"`
	More   bool          `json:"more,omitempty"`  // another packet of the same answer follows
	Names  []string      `json:"names,omitempty"` // of the descriptors that come along
	Kept   []Kept        `json:"kept,omitempty"`  // one with many names comes in parts
	Status uint32        `json:"status,omitempty"`
	Alive  bool          `json:"alive,omitempty"` // to opStatus: it has not ended
	Error  *bailey.Error `json:"error,omitempty"`
}

// parseRequest reads a request that came with n descriptors. It accepts nothing
// that the keeper would have to look at again.
func parseRequest(b []byte, n int) (request, error) {
	var r request
	if err := parse(b, &r); err != nil {
		return r, err
	}
	switch r.Op {
	case opPut, opGet, opDrop, opStatus:
		if !validID(r.ID) {
			return r, fmt.Errorf("%q is no id of a sandbox", r.ID)
		}
	case opList, opUpgrade:
		if r.ID != "" || len(r.Names) > 0 {
			return r, errors.New("it names something")
		}
	default:
		return r, fmt.Errorf("%q is nothing to ask for", r.Op)
	}
	for _, name := range r.Names {
		if !validName(name) {
			return r, fmt.Errorf("%q is no name of a descriptor", name)
		}
	}
	want := 0
	if r.Op == opPut {
		want = len(r.Names)
	}
	if n != want {
		return r, fmt.Errorf("it has %d descriptors for %d names", n, want)
	}
	if r.Pid < 0 || r.Pid > 0 && r.Op != opPut {
		return r, errors.New("its process makes no sense")
	}
	return r, nil
}

// parseAnswer reads an answer that came with n descriptors.
func parseAnswer(b []byte, n int) (answer, error) {
	var a answer
	if err := parse(b, &a); err != nil {
		return a, err
	}
	if n != len(a.Names) {
		return a, fmt.Errorf("it has %d descriptors for %d names", n, len(a.Names))
	}
	return a, nil
}

func parse(b []byte, into any) error {
	if len(b) > maxMessage {
		return errors.New("it is too long")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows it")
	}
	return nil
}

// validID says whether s can be a sandbox's id, which is a file's name as well.
func validID(s string) bool {
	if s == "" || len(s) > maxID || s[0] == '.' {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// validName says whether s can name a descriptor: printable, with no spaces.
func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

var errTruncated = errors.New("more descriptors came than can be opened (RLIMIT_NOFILE) or were announced")

// receive reads a packet from a socket; buf and oob are the caller's to use again.
// The descriptors are close-on-exec. io.EOF is the other end's.
func receive(fd int, buf, oob []byte) (n int, fds []int, err error) {
	n, oobn, flags, _, err := unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, nil, err
	}
	if oobn > 0 {
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return 0, nil, err
		}
		for i := range msgs {
			if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		closeAll(fds)
		return n, nil, errTruncated
	}
	if n == 0 {
		closeAll(fds)
		return 0, nil, io.EOF
	}
	if flags&unix.MSG_TRUNC != 0 {
		n = len(buf) // which is more than a message may have
	}
	return n, fds, nil
}

func newBuffers() (buf, oob []byte) {
	return make([]byte, maxMessage+1), make([]byte, unix.CmsgSpace(4*maxFiles))
}

// transmit writes a packet.
func transmit(fd int, v any, fds []int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxMessage || len(fds) > maxFiles {
		return errors.New("the message is too long")
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		if err := unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
			return os.NewSyscallError("sendmsg", err)
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
