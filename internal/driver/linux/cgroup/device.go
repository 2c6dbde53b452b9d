//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/mountinfo"
)

// devices finds the whole disks under folders. Folders in memory have none and
// add nothing, since nothing of theirs goes to a disk.
func (h *Host) devices(folders []string) ([]string, error) {
	var out []string
	for _, dir := range folders {
		dev, err := h.device(dir)
		if err != nil {
			return nil, bailey.Errorf(bailey.CodeLimitUnavailable, "set the io limit",
				"keep the sandbox's files on a local disk, or leave the io limit away", "the disk under %s cannot be found: %w", dir, err)
		}
		if dev != "" && !slices.Contains(out, dev) {
			out = append(out, dev)
		}
	}
	if len(folders) == 0 {
		return nil, bailey.Errorf(bailey.CodeLimitUnavailable, "set the io limit", "", "it is not known which disks the sandbox uses")
	}
	return out, nil
}

func (h *Host) device(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", err
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return "", nil
	}
	dev := st.Dev
	if unix.Major(dev) == 0 {
		// Some file systems (btrfs) have numbers of their own; their source in
		// mountinfo is the device.
		source, err := h.mountSource(dir)
		if err != nil {
			return "", err
		}
		if err := unix.Stat(source, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
			return "", fmt.Errorf("its file system comes from %s, which is not a block device", source)
		}
		dev = st.Rdev
	}
	return h.wholeDisk(fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)))
}

// wholeDisk gives the disk of a partition: limits can be set on disks only.
func (h *Host) wholeDisk(dev string) (string, error) {
	link := h.root + "/sys/dev/block/" + dev
	real, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", err
	}
	if !exists(real, "partition") {
		return dev, nil
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(real), "dev"))
	return strings.TrimSpace(string(b)), err
}

// mountSource gives the source of the mount that dir lies in.
func (h *Host) mountSource(dir string) (string, error) {
	fd, err := open(dir, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	info, err := os.ReadFile(fmt.Sprintf("%s/proc/self/fdinfo/%d", h.root, fd))
	if err != nil {
		return "", err
	}
	id := ""
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id = strings.TrimSpace(v)
		}
	}
	text, err := os.ReadFile(h.root + "/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	mounts, err := mountinfo.Parse(text)
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if strconv.Itoa(m.ID) == id {
			return m.Source, nil
		}
	}
	return "", fmt.Errorf("mount %s is not in mountinfo", id)
}
