package hostview

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// Host is what the checks of mounts and workspaces need to know of the host.
type Host struct {
	Root       string // as Input.Root
	Home       string // the caller's home folder
	BaileyHome string // Bailey's data folder; may be empty
}

// hostRoot names places that hand the machine, or a part of it that everybody
// relies on, to whoever can read or write them, and says why.
var hostRoot = []struct{ path, why string }{
	{"/proc", "the host's /proc shows and controls every process"},
	{"/sys", "the host's /sys controls its devices and its kernel"},
	{"/dev", "the host's /dev holds its disks and its memory"},
	{"/run", "/run holds the sockets of the host's services"},
	{"/boot", "/boot holds the kernel that the host starts"},
	{"/etc/shadow", "it holds the host's password hashes"},
	{"/etc/gshadow", "it holds the host's password hashes"},
	{"/etc/security/opasswd", "it holds the host's password hashes"},
	{"/var/backups", "it holds copies of the host's password hashes"},
	{"/etc/sudoers", "it says who becomes root on the host"},
	{"/etc/sudoers.d", "it says who becomes root on the host"},
	{"/etc/ssh", "it holds the host's ssh keys"},
	{"/etc/ssl/private", "it holds the host's private keys"},
	{"/etc/pki/tls/private", "it holds the host's private keys"},
	{"/etc/letsencrypt", "it holds the host's private keys"},
	{"/etc/krb5.keytab", "it holds the host's Kerberos keys"},
	{"/etc/wireguard", "it holds the host's network keys"},
	{"/etc/openvpn", "it holds the host's network keys"},
	{"/etc/netplan", "it holds the host's network passwords"},
	{"/etc/NetworkManager", "it holds the host's network passwords"},
	{"/etc/wpa_supplicant", "it holds the host's network passwords"},
	{"/etc/kubernetes", "it holds the keys of the host's cluster"},
	{"/etc/rancher", "it holds the keys of the host's cluster"},
	{"/var/lib/kubelet", "it holds the keys of the host's cluster"},
	{"/var/lib/rancher", "it holds the keys of the host's cluster"},
	{"/etc/docker", "it rules the host's containers"},
	{"/etc/containerd", "it rules the host's containers"},
	{"/var/lib/docker", "it holds the host's containers"},
	{"/var/lib/containerd", "it holds the host's containers"},
	{"/var/lib/containers", "it holds the host's containers"},
	{"/var/lib/lxd", "it holds the host's containers"},
	{"/var/snap/lxd", "it holds the host's containers"},
	{"/var/lib/incus", "it holds the host's containers"},
	{"/var/lib/libvirt", "it holds the host's virtual machines"},
	{"/var/lib/systemd", "it belongs to the host's services"},
	{"/var/lib/private", "it belongs to the host's services"},
	{"/var/lib/cloud", "it holds what set the host up, passwords included"},
	{"/var/lib/sss", "it holds the host's logins"},
	{"/var/spool/cron", "what lies there runs on the host"},
	{"/nix/var", "whoever reaches the Nix daemon builds on the host"},
}

// hostPrograms are the folders whose programs and settings the host itself
// uses: showing them is harmless, writing to them is not.
var hostPrograms = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/var", "/nix", "/gnu", "/snap"}

// reservedTargets are folders that the sandbox has of its own.
var reservedTargets = []string{"/proc", "/sys", "/dev"}

// CheckMount says whether m may be shown in a sandbox. A mount that hands over
// the host fails with host_root_equivalent, one that shows credentials, a home
// folder or private data with mount_refused; iUnderstand allows both. A source
// that does not exist fails with not_found and a target that cannot be one
// with usage, whatever iUnderstand says.
func CheckMount(h Host, m Mount, iUnderstand bool) error {
	t := newTree(h.Root)
	return checkMount(t, newHostDeny(t, h.Home, h.BaileyHome), m, iUnderstand)
}

// newHostDeny builds the deny list for real places of this host.
func newHostDeny(t *tree, home, baileyHome string) denyList {
	real := func(p string) string {
		if !path.IsAbs(p) {
			return ""
		}
		if r, _, _, err := t.resolve(p); err == nil {
			return r
		}
		return path.Clean(p)
	}
	h := real(home)
	if h == "/" {
		h = ""
	}
	return newDenyList(h, real(baileyHome))
}

func checkMount(t *tree, deny denyList, m Mount, iUnderstand bool) error {
	what := "mount " + quote(m.Source)
	if m.Target != m.Source {
		what += " at " + quote(m.Target)
	}
	usage := func(format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, what, "name another target", format, args...)
	}
	if !path.IsAbs(m.Source) || !path.IsAbs(m.Target) || strings.ContainsRune(m.Source+m.Target, 0) {
		return usage("source and target must be absolute paths without NUL bytes")
	}
	if target := path.Clean(m.Target); target == "/" || target == "/tmp" {
		return usage("the sandbox needs its own %s", target)
	}
	for _, r := range reservedTargets {
		if within(path.Clean(m.Target), r) {
			return usage("the sandbox needs its own %s", r)
		}
	}
	real, fi, _, err := t.resolve(m.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return bailey.Errorf(bailey.CodeNotFound, what, "check the source's name", "there is no such file or folder")
	} else if err != nil {
		return bailey.Errorf(bailey.CodeNotFound, what, "check the source's name", "%w", err)
	}
	if iUnderstand {
		return nil
	}
	why := hostRootWhy(t, real, fi, m.Writable)
	if why == "" && fi.IsDir() {
		why = socketWhy(t, real)
	}
	if why != "" {
		return bailey.Errorf(bailey.CodeHostRootEquivalent, what,
			"mount something narrower, or add --i-understand if the sandbox shall have the host", "%s", why)
	}
	if why := privateWhy(t, deny, real, fi); why != "" {
		return bailey.Errorf(bailey.CodeMountRefused, what,
			"mount something narrower, or add --i-understand if the sandbox shall have it", "%s", why)
	}
	return nil
}

// hostRootWhy says why showing real, described by fi, hands over the host.
func hostRootWhy(t *tree, real string, fi fs.FileInfo, writable bool) string {
	switch mode := fi.Mode(); {
	case real == "/":
		return "it is the whole host"
	case mode&fs.ModeSocket != 0:
		return "it is a socket: whoever reaches it acts as the program behind it, outside of the sandbox"
	case mode&fs.ModeDevice != 0:
		return "it is a device of the host"
	}
	for _, r := range hostRoot {
		if within(real, r.path) {
			return r.why
		}
	}
	for _, r := range hostRoot {
		// The place may be reached by a link of its own, as /var/run is.
		if q, _, _, err := t.resolve(r.path); err == nil && (within(real, q) || within(q, real)) {
			if within(real, q) {
				return r.why
			}
			// A folder such as /etc that holds dangerous places among
			// harmless ones.
			return "it holds " + r.path + ": " + r.why
		}
	}
	if writable {
		for _, p := range hostPrograms {
			q, _, _, err := t.resolve(p)
			if within(real, p) || err == nil && (within(real, q) || within(q, real)) {
				return "the host runs what lies in " + p
			}
		}
	}
	return ""
}

// socketWhy says which socket or device lies in folder real itself. It is not
// asked about workspaces: seen through a copy-on-write layer, a socket there
// leads nowhere.
func socketWhy(t *tree, real string) string {
	for _, e := range t.list(real) {
		if e.Type()&fs.ModeSocket != 0 {
			return "it holds the socket " + quote(e.Name()) + ": whoever reaches it acts as the program behind it"
		}
		if e.Type()&fs.ModeDevice != 0 {
			return "it holds the device " + quote(e.Name())
		}
	}
	return ""
}

// privateWhy says why showing real gives away credentials or private data.
func privateWhy(t *tree, deny denyList, real string, fi fs.FileInfo) string {
	if why := deny.why(real); why != "" {
		return why
	}
	if deny.home != "" && within(deny.home, real) {
		return "it holds the home folder"
	}
	if isHome(real) {
		return "it is, or holds, home folders"
	}
	if fi.IsDir() {
		for _, q := range deny.inside(t, real) {
			if !underAny(q, secretSystemPaths) { // those are covered instead
				return "it holds " + quote(q) + ", which may hold credentials or private data"
			}
		}
	}
	return ""
}

// isHome says whether real is a folder of home folders, or one of them.
func isHome(real string) bool {
	for _, p := range []string{"/home", "/root", "/var/home", "/Users", "/export/home"} {
		if real == p || path.Dir(real) == p && p != "/root" {
			return true
		}
	}
	return false
}

// CheckWorkspace says whether the existing folder dir may be a workspace as far
// as this package knows: one that lies in, or holds, a place of credentials or
// private data fails with workspace_refused; iUnderstand allows it. Homes and
// the system's folders are refused by the package workspace.
func CheckWorkspace(h Host, dir string, iUnderstand bool) error {
	if iUnderstand {
		return nil
	}
	t := newTree(h.Root)
	what := "use " + quote(dir) + " as the workspace"
	real, fi, _, err := t.resolve(dir)
	if err != nil || !path.IsAbs(dir) || !fi.IsDir() {
		return bailey.Errorf(bailey.CodeNotFound, what, "name a folder that exists", "there is no such folder")
	}
	if why := privateWhy(t, newHostDeny(t, h.Home, h.BaileyHome), real, fi); why != "" {
		return bailey.Errorf(bailey.CodeWorkspaceRefused, what, "go to a project's folder, or add --i-understand", "%s", why)
	}
	return nil
}
