package testneeds

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

// Feature is something that a host has or has not, and that no package brings.
type Feature string

// The features that tests may need.
const (
	Processors    Feature = "processors"     // at least two
	AMD64         Feature = "amd64"          // an x86-64 processor
	UserNS        Feature = "userns"         // this user can make user namespaces
	CgroupV1      Feature = "cgroup-v1"      // a mounted version 1 tree with the memory controller, writable
	CgroupV2      Feature = "cgroup-v2"      // a mounted version 2 tree with the memory controller, writable
	Cgroups       Feature = "cgroups"        // either
	CgroupV2Top   Feature = "cgroup-v2-top"  // the top of a version 2 tree with controllers, writable
	CgroupXattr   Feature = "cgroup-xattr"   // user attributes on folders of a version 2 tree
	Overlay       Feature = "overlay"        // an overlay can be mounted over a folder of the temporary folder
	UserXattr     Feature = "user-xattr"     // the temporary folder takes user attributes
	MountXFS      Feature = "mount-xfs"      // the kernel mounts xfs images
	MountBtrfs    Feature = "mount-btrfs"    // the kernel mounts btrfs images
	MountExt4     Feature = "mount-ext4"     // the kernel mounts ext4 images
	Landlock      Feature = "landlock"       // the kernel has Landlock
	BlockDisk     Feature = "block-disk"     // the temporary folder lies on a block device with a number of its own
	SubordinateID Feature = "subordinate-id" // this user has ranges in /etc/subuid and /etc/subgid, or is root
)

// Reason gives the words of a skip for want of the feature.
func (f Feature) Reason(detail string) string {
	s := PrefixHost + string(f)
	if detail != "" {
		s += ": " + detail
	}
	return s
}

// MountOf gives the feature of mounting images of a file system.
func MountOf(fs string) Feature { return Feature("mount-" + fs) }

// landlockPrefix begins the names that LandlockABI gives.
const landlockPrefix = "landlock-"

// LandlockABI gives the feature of a kernel whose Landlock has at least a version.
func LandlockABI(version int) Feature { return Feature(landlockPrefix + strconv.Itoa(version)) }

// find gives the feature's probe, nil if there is none.
func (f Feature) find() probe {
	if v, ok := strings.CutPrefix(string(f), landlockPrefix); ok {
		if n, err := strconv.Atoi(v); err == nil && n > 0 {
			return func() (bool, string) {
				have := landlockVersion()
				return have >= n, fmt.Sprintf("this kernel has version %d", have)
			}
		}
	}
	return probes[f]
}

// Known tells whether the feature has a probe.
func (f Feature) Known() bool { return f.find() != nil }

// Probe tells whether this host has the feature for the user who asks, and what
// was seen when it has not.
func (f Feature) Probe() (ok bool, detail string) {
	p := f.find()
	if p == nil {
		return false, "no probe is known for it"
	}
	return p()
}

type probe func() (bool, string)

func anyProcessor() (bool, string) {
	return runtime.NumCPU() >= 2, "one processor"
}

func amd64() (bool, string) {
	return runtime.GOARCH == "amd64", runtime.GOARCH
}
