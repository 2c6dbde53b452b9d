package seatbelt

// base is what every command needs to run at all: to start programs, to look
// at itself, the loader's files, harmless devices, and facts about the machine.
const base = `(version 1)
(deny default)

; programs and processes of this sandbox
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))

; the dynamic loader and the system's libraries
(allow file-read* file-test-existence file-map-executable process-exec*
  (subpath "/usr/lib")
  (subpath "/System/Library")
  (subpath "/System/Volumes/Preboot/Cryptexes/OS")
  (subpath "/System/Cryptexes")
  (subpath "/private/var/db/dyld"))
(allow file-read* (literal "/"))
(allow file-read-metadata file-test-existence
  (literal "/etc")
  (literal "/tmp")
  (literal "/var")
  (literal "/private"))
(allow file-read*
  (subpath "/usr/share/zoneinfo")
  (subpath "/private/var/db/timezone")
  (literal "/private/etc/localtime"))

; devices
(allow file-read* file-write-data
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/tty"))
(allow file-read*
  (literal "/dev")
  (literal "/dev/random")
  (literal "/dev/urandom")
  (subpath "/dev/fd"))
(allow file-write-data (subpath "/dev/fd"))
(allow file-ioctl
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/tty")
  (literal "/dev/random")
  (literal "/dev/urandom"))

; terminals that it makes itself, as script and tmux do; those of others stay shut
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx"))
(allow file-read* file-write* file-ioctl
  (require-all
    (regex #"^/dev/ttys[0-9]+$")
    (extension "com.apple.sandbox.pty")))

; semaphores of Python's multiprocessing
(allow ipc-posix-sem
  (ipc-posix-name-regex #"^/?mp-")
  (ipc-posix-name-regex #"^/?loky-"))

; who am I, and where are my temporary files
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.bsd.dirhelper"))

; facts about the machine
(allow sysctl-read
  (sysctl-name-prefix "hw.optional.")
  (sysctl-name-prefix "hw.perflevel")
  (sysctl-name "hw.activecpu")
  (sysctl-name "hw.byteorder")
  (sysctl-name "hw.cachelinesize")
  (sysctl-name "hw.cpufamily")
  (sysctl-name "hw.cpusubtype")
  (sysctl-name "hw.cputype")
  (sysctl-name "hw.l1dcachesize")
  (sysctl-name "hw.l1icachesize")
  (sysctl-name "hw.l2cachesize")
  (sysctl-name "hw.l3cachesize")
  (sysctl-name "hw.logicalcpu")
  (sysctl-name "hw.logicalcpu_max")
  (sysctl-name "hw.machine")
  (sysctl-name "hw.memsize")
  (sysctl-name "hw.model")
  (sysctl-name "hw.ncpu")
  (sysctl-name "hw.nperflevels")
  (sysctl-name "hw.packages")
  (sysctl-name "hw.pagesize")
  (sysctl-name "hw.pagesize_compat")
  (sysctl-name "hw.physicalcpu")
  (sysctl-name "hw.physicalcpu_max")
  (sysctl-name "hw.tbfrequency_compat")
  (sysctl-name "hw.vectorunit")
  (sysctl-name "kern.argmax")
  (sysctl-name "kern.clockrate")
  (sysctl-name "kern.hostname")
  (sysctl-name "kern.iossupportversion")
  (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.maxproc")
  (sysctl-name "kern.ngroups")
  (sysctl-name "kern.osproductversion")
  (sysctl-name "kern.osrelease")
  (sysctl-name "kern.ostype")
  (sysctl-name "kern.osvariant_status")
  (sysctl-name "kern.osversion")
  (sysctl-name "kern.secure_kernel")
  (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version")
  (sysctl-name "machdep.cpu.brand_string")
  (sysctl-name "security.mac.lockdown_mode_state")
  (sysctl-name "sysctl.proc_cputype")
  (sysctl-name "vm.loadavg"))
`

// last is what no rule before it may have opened.
const last = `
; never
(deny network*)
(deny file-write-setugid)
`
