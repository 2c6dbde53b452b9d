package pack

import (
	"bytes"
	"fmt"
)

// archive makes the "newc" form of cpio, which the kernel unpacks as its first file
// system (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	b    bytes.Buffer
	next int
}

const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
)

func (a *archive) entry(name string, mode int, data []byte) {
	a.next++
	fmt.Fprintf(&a.b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.next, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.b.WriteString(name)
	a.b.WriteByte(0)
	a.pad()
	a.b.Write(data)
	a.pad()
}

func (a *archive) pad() { a.b.Write(make([]byte, -a.b.Len()&3)) }

// initramfs makes the first file system of a virtual machine: boot as /init,
// bailey-init, and the kernel's modules.
func initramfs(boot, agent []byte, modules []file) []byte {
	a := &archive{}
	for _, dir := range []string{"proc", "sys", "dev", "root", "modules"} {
		a.entry(dir, cpioDir|0o755, nil)
	}
	a.entry("init", cpioFile|0o755, boot)
	a.entry("bailey-init", cpioFile|0o755, agent)
	for _, m := range modules {
		a.entry("modules/"+m.name, cpioFile|0o644, m.data)
	}
	a.entry("TRAILER!!!", 0, nil)
	return a.b.Bytes()
}
