package machine

import (
	"fmt"
	"strconv"
	"strings"
)

// The descriptors that the monitor inherits.
const (
	agentFD   = 3 // the stream to bailey-init
	filesFD   = 4 // the stream of file requests
	controlFD = 5 // its own control
)

// slow are parts of the kernel's start that cost much under emulation and are of no use
// in a sandbox: certificates, probes, keys, measurements.
const slow = "load_system_certificate_list,init_kprobe_trace,init_encrypted,init_evm,init_ima,digsig_init,crypto_kdf108_init,nvme_core_init"

// commandLine is what the kernel is told.
func (c *Config) commandLine(tsc int) string {
	words := []string{
		"panic=-1", "reboot=t", "audit=0", "apparmor=0", "random.trust_cpu=on", "no_timer_check", "noreplace-smp",
		"rcupdate.rcu_expedited=1", "cryptomgr.notests", "initcall_blacklist=" + slow, "rdinit=/init",
	}
	if c.Console {
		words = append(words, "console=ttyS0", "loglevel=6")
	} else {
		words = append(words, "quiet", "loglevel=0")
	}
	if !c.KVM {
		// There is no clock that the kernel could measure the processor's counter
		// with: without a power management timer it waits forever. The counter is this
		// host's.
		words = append(words, "tsc=reliable", fmt.Sprint("tsc_early_khz=", tsc), fmt.Sprint("lpj=", 2*tsc))
		// Nothing of an emulated processor speculates.
		words = append(words, "mitigations=off", "nokaslr")
	}
	words = append(words, "bailey.host="+c.Host)
	if c.Card {
		words = append(words, "bailey.net=1")
	}
	if c.Pids > 0 {
		words = append(words, fmt.Sprint("bailey.pids=", c.Pids))
	}
	return strings.Join(words, " ")
}

// args are the monitor's arguments.
// A fork's memory is the file's, copied where it is written to.
func (c *Config) args(tsc int, fork bool) []string {
	serial := "off"
	if c.Console {
		serial = "on"
	}
	a := []string{
		"-M", "microvm,acpi=on,rtc=on,pit=off,pic=off,isa-serial=" + serial,
		"-m", strconv.FormatInt(c.Memory>>20, 10) + "M", "-smp", strconv.Itoa(c.CPUs),
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-kernel", c.Vmlinux, "-initrd", c.Initramfs, "-append", c.commandLine(tsc),
		"-device", "virtio-serial-device",
		"-chardev", fmt.Sprint("socket,id=agent,fd=", agentFD), "-device", "virtserialport,chardev=agent,name=agent",
		"-chardev", fmt.Sprint("socket,id=files,fd=", filesFD), "-device", "virtserialport,chardev=files,name=files",
		"-chardev", fmt.Sprint("socket,id=control,fd=", controlFD), "-mon", "chardev=control,mode=control",
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-device,rng=rng",
	}
	if c.RAM != "" {
		share := "on"
		if fork {
			share = "off"
			a = append(a, "-incoming", "defer")
		}
		a[1] += ",memory-backend=ram"
		a = append(a, "-object", fmt.Sprintf("memory-backend-file,id=ram,size=%d,mem-path=%s,share=%s", c.Memory, c.RAM, share))
	}
	if c.Firmware != "" {
		a = append(a, "-L", c.Firmware)
	}
	if c.KVM {
		a = append(a, "-accel", "kvm", "-cpu", "host")
	} else {
		a = append(a, "-accel", "tcg,tb-size=64", "-cpu", "max")
	}
	if c.Card {
		// Documentation's own addresses, which are nobody's: no destination is lost.
		a = append(a, "-netdev", "user,id=net,net=192.0.2.0/24,host=192.0.2.2,dns=192.0.2.3,ipv6-net=2001:db8::/64,ipv6-host=2001:db8::2,ipv6-dns=2001:db8::3",
			"-device", "virtio-net-device,netdev=net")
	}
	if c.Console {
		a = append(a, "-chardev", "file,id=console,path=/dev/stderr", "-serial", "chardev:console")
	}
	return a
}
