//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func loadModules() error {
	names, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	slices.Sort(names) // they are named in the order in which they need each other
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return errors.New("load " + name + ": " + err.Error())
		}
		os.Remove(name) // its memory is of use to others
	}
	return nil
}

// openPort opens a port of the machine by its name, as soon as the kernel shows it.
func openPort(name string) (*os.File, error) {
	for range 1000 {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, n := range names {
			if b, _ := os.ReadFile(n); string(b) == name+"\n" {
				// A write that may block waits in the kernel with the processor busy.
				fd, err := unix.Open("/dev/"+filepath.Base(filepath.Dir(n)), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
				if err == nil {
					return os.NewFile(uintptr(fd), name), nil
				}
				if err != unix.ENOENT {
					return nil, err
				}
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil, errors.New("the machine has no port " + name)
}

func execAt(fd int, argv, env []string) error {
	pointers := func(list []string) *byte {
		p := make([]*byte, len(list)+1)
		for i, s := range list {
			p[i], _ = unix.BytePtrFromString(s)
		}
		return (*byte)(unsafe.Pointer(&p[0]))
	}
	empty, _ := unix.BytePtrFromString("")
	_, _, e := syscall.Syscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(empty)),
		uintptr(unsafe.Pointer(pointers(argv))), uintptr(unsafe.Pointer(pointers(env))), unix.AT_EMPTY_PATH, 0)
	return e
}

// The machine's card is the monitor's own little network, whose only peer is the monitor.
var (
	cardAddr4 = netip.MustParseAddr("192.0.2.15")
	gateway4  = netip.MustParseAddr("192.0.2.2")
	cardAddr6 = netip.MustParseAddr("2001:db8::15")
	gateway6  = netip.MustParseAddr("2001:db8::2")
)

// network brings the loopback up and, with a card, gives it an address and makes it the
// way to everywhere.
func network(card bool) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	up := func(name string) error {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
	}
	if err := up("lo"); err != nil {
		return errors.New("bring lo up: " + err.Error())
	}
	if !card {
		return nil
	}
	index := 0
	for range 1000 { // the kernel may still be finding it
		if b, err := os.ReadFile("/sys/class/net/eth0/ifindex"); err == nil {
			index, _ = strconv.Atoi(string(b[:len(b)-1]))
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if index == 0 {
		return errors.New("the machine has no card")
	}
	// Duplicate address detection would hold the address back for a second.
	os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_dad", []byte("0"), 0)
	os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_ra", []byte("0"), 0)
	if err := up("eth0"); err != nil {
		return errors.New("bring the card up: " + err.Error())
	}
	for _, m := range [][]byte{
		addressMessage(index, cardAddr4, 24), addressMessage(index, cardAddr6, 64), routeMessage(index, gateway4), routeMessage(index, gateway6),
	} {
		if err := netlink(m); err != nil {
			return errors.New("set the card up: " + err.Error())
		}
	}
	return nil
}

func attribute(b []byte, kind uint16, data []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(4+len(data)))
	b = binary.LittleEndian.AppendUint16(b, kind)
	b = append(b, data...)
	return append(b, make([]byte, -len(data)&3)...)
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func message(kind uint16, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.LittleEndian.AppendUint16(b, kind)
	b = binary.LittleEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	b = append(b, 1, 0, 0, 0, 0, 0, 0, 0)
	return append(b, body...)
}

func addressMessage(index int, a netip.Addr, bits byte) []byte {
	const noDAD = 0x02
	b := binary.LittleEndian.AppendUint32([]byte{family(a), bits, noDAD, 0}, uint32(index))
	b = attribute(b, unix.IFA_LOCAL, a.AsSlice())
	return message(unix.RTM_NEWADDR, attribute(b, unix.IFA_ADDRESS, a.AsSlice()))
}

func routeMessage(index int, gateway netip.Addr) []byte {
	b := []byte{family(gateway), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	b = attribute(b, unix.RTA_GATEWAY, gateway.AsSlice())
	return message(unix.RTM_NEWROUTE, attribute(b, unix.RTA_OIF, binary.LittleEndian.AppendUint32(nil, uint32(index))))
}

// netlink sends one request and reads its acknowledgement.
func netlink(m []byte) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, buf, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return unix.EPROTO
	}
	if code := int32(binary.LittleEndian.Uint32(buf[16:])); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}
