package image

// templateVersion changes when the same host is to give another template.
const templateVersion = 1

// hostTop are the folders of the host that the template shows where they are,
// if they are folders; where the distribution has merged them into /usr they
// are links, and the template has the same links.
var hostTop = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// hostDatabases are package managers' own records of what is below /usr. They
// are shown in place, because they have to agree with it.
var hostDatabases = []string{"var/lib/dpkg", "var/lib/rpm", "var/lib/pacman"}

// hostEtc are the parts of the host's /etc that programs below /usr need and
// that say nothing about this machine or the people on it. The last component
// may be a pattern. Every name was chosen; a new one needs the same question:
// can an administrator have put a secret here? What is not readable for every
// user of the host is never taken, whatever this list says.
//
// Left out on purpose: gitconfig, pip.conf, npmrc, gemrc, wgetrc, profile.d,
// environment (credentials of proxies and registries), sudoers, ssh, machine-id,
// hostname, fstab, crypttab, mtab, resolv.conf (the gate answers names), cron,
// systemd, ssl/private, letsencrypt, krb5.keytab, ppp, NetworkManager, docker.
var hostEtc = []string{
	// the dynamic linker
	"ld.so.conf", "ld.so.conf.d", "ld.so.cache",
	// which distribution
	"debian_version", "os-release", "lsb-release", "issue", "issue.net", "redhat-release", "system-release", "system-release-cpe",
	"fedora-release", "almalinux-release", "rocky-release", "centos-release", "alpine-release", "arch-release", "SuSE-release",
	// which program is behind a name
	"alternatives",
	// certificates and TLS settings
	"ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ssl/ca-bundle.pem", "ca-certificates.conf", "ca-certificates",
	"pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "crypto-policies/back-ends", "crypto-policies/config",
	"gnutls/config",
	// time and language
	"localtime", "timezone", "locale.alias", "locale.conf", "locale.gen", "default/locale", "inputrc", "terminfo",
	// names of protocols and types
	"protocols", "services", "rpc", "ethertypes", "networks", "host.conf", "gai.conf", "mime.types", "magic", "magic.mime", "shells", "xattr.conf",
	// making users and changing to them
	"login.defs", "adduser.conf", "deluser.conf", "skel", "pam.conf", "pam.d", "security/limits.conf", "security/pam_env.conf",
	"security/access.conf", "security/group.conf", "security/namespace.conf", "security/time.conf",
	// package managers
	"dpkg/dpkg.cfg", "dpkg/dpkg.cfg.d", "dpkg/origins", "debconf.conf", "ucf.conf",
	"rpm", "pacman.conf", "pacman.d/mirrorlist", "apk/arch", "apk/keys", "apk/repositories", "apk/world",
	// languages and tools
	"java-*-openjdk", "maven/m2.conf", "maven/logging", "maven/toolchains.xml", "perl", "python3", "python3.*", "python2.*",
	"emacs", "vim", "nanorc", "manpath.config", "man_db.conf", "groff", "texmf", "lynx", "gss/mech.d",
	"ImageMagick-*", "fonts", "xml", "sgml", "glvnd", "vulkan/icd.d", "OpenCL/vendors", "gtk-2.0", "gtk-3.0", "X11/rgb.txt", "xdg/menus",
	"gdb", "mke2fs.conf", "gprofng.rc", "bindresvport.blacklist", "libnl-3",
}

// hostEtcGuarded can hold credentials of package sources. Files of them are
// taken only if they look free of such.
var hostEtcGuarded = []string{
	"apt/sources.list", "apt/sources.list.d", "apt/preferences", "apt/preferences.d", "apt/apt.conf", "apt/apt.conf.d",
	"apt/trusted.gpg", "apt/trusted.gpg.d", "apt/keyrings", "apt/listchanges.conf",
	"dnf", "yum.conf", "yum.repos.d", "zypp/repos.d",
}

// A skeletonDir is a folder that the template has whatever the host has.
type skeletonDir struct {
	name  string
	mode  int64
	owner string // a user name, root if empty or unknown
}

var skeletonDirs = []skeletonDir{
	{name: ".", mode: 0o755},
	{name: "dev", mode: 0o755}, {name: "proc", mode: 0o555}, {name: "sys", mode: 0o555},
	{name: "etc", mode: 0o755}, {name: "etc/opt", mode: 0o755},
	{name: "home", mode: 0o755}, {name: "media", mode: 0o755}, {name: "mnt", mode: 0o755}, {name: "opt", mode: 0o755},
	{name: "root", mode: 0o700}, {name: "run", mode: 0o755}, {name: "run/lock", mode: 0o1777}, {name: "run/user", mode: 0o755},
	{name: "srv", mode: 0o755}, {name: "tmp", mode: 0o1777},
	{name: "var", mode: 0o755}, {name: "var/backups", mode: 0o755},
	{name: "var/cache", mode: 0o755}, {name: "var/cache/apt", mode: 0o755}, {name: "var/cache/apt/archives", mode: 0o755},
	{name: "var/cache/apt/archives/partial", mode: 0o700, owner: "_apt"}, {name: "var/cache/debconf", mode: 0o755},
	{name: "var/cache/fontconfig", mode: 0o755}, {name: "var/cache/ldconfig", mode: 0o700},
	{name: "var/lib", mode: 0o755}, {name: "var/lib/apt", mode: 0o755}, {name: "var/lib/apt/lists", mode: 0o755},
	{name: "var/lib/apt/lists/partial", mode: 0o700, owner: "_apt"}, {name: "var/lib/apt/periodic", mode: 0o755},
	{name: "var/lib/misc", mode: 0o755}, {name: "var/lib/pam", mode: 0o755}, {name: "var/lib/ucf", mode: 0o755},
	{name: "var/lib/dpkg", mode: 0o755}, {name: "var/local", mode: 0o755}, {name: "var/log", mode: 0o755}, {name: "var/log/apt", mode: 0o755},
	{name: "var/mail", mode: 0o1777}, {name: "var/opt", mode: 0o755}, {name: "var/spool", mode: 0o755}, {name: "var/tmp", mode: 0o1777},
}

var skeletonLinks = map[string]string{
	"var/run": "/run", "var/lock": "/run/lock", "var/spool/mail": "../mail", "etc/mtab": "../proc/self/mounts",
}
