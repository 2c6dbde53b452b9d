package linux

// Protection names one wall of a sandbox, so that the escape suite can build
// the same sandbox without it and show that the wall is what stops an attempt.
// No command, flag or file can omit one: Options.Omit is reachable from Go code of
// this module only.
type Protection string

// The protections that can be omitted, one by one. Names that begin with
// "seccomp." omit one rule of the filter; see package seccomp.
const (
	NoPidNS       Protection = "pidns"        // processes of the host are not visible
	NoNetNS       Protection = "netns"        // no interface but loopback, no abstract sockets of the host
	NoIPCNS       Protection = "ipcns"        // no System V or POSIX queues of the host
	NoUTSNS       Protection = "utsns"        // the host's name
	NoCgroupNS    Protection = "cgroupns"     // paths of the host's cgroups
	NoUserNS      Protection = "userns"       // ids of the host do not exist
	NoRoot        Protection = "root"         // the host's root file system is replaced
	NoProcCovers  Protection = "proc-covers"  // /proc/sys and others are read-only
	NoProcMasks   Protection = "proc-masks"   // /proc/kcore and others are empty
	NoReadOnly    Protection = "read-only"    // the host's folders cannot be written
	NoNoDev       Protection = "nodev"        // device nodes are inert
	NoNoSetUID    Protection = "no-set-uid"   // files of the host get no set-user-id bit
	NoNoSUID      Protection = "nosuid"       // set-uid programs are plain ones
	NoCaps        Protection = "capabilities" // capabilities are dropped
	NoNNP         Protection = "no-new-privs" // nor can they be gained
	NoSeccomp     Protection = "seccomp"      // the filter as a whole
	NoLandlock    Protection = "landlock"     // the second wall
	NoClose       Protection = "close"        // descriptors of the parent are closed
	NoRlimits     Protection = "rlimits"      // core, descriptors, processes
	NoCgroup      Protection = "cgroup"       // memory, pids, cpu, io
	NoKeyring     Protection = "keyring"      // a session keyring of its own
	NoSafeTargets Protection = "safe-targets" // mount targets are resolved without links
)

// seccompPrefix marks protections that package seccomp knows.
const seccompPrefix = "seccomp."
