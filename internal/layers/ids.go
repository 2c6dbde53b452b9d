package layers

import "github.com/bailey-sandbox/bailey"

// IDs says how owners on disk are those inside. The zero IDs means that they are
// the same: so it is where the driver maps ids by the mount. With others, an id
// outside every range belongs to somebody the sandbox does not know.
type IDs struct {
	UID []IDRange `json:"uid,omitempty"`
	GID []IDRange `json:"gid,omitempty"`
}

// IDRange says that Count ids from Disk on are Inside and following.
type IDRange struct {
	Disk   uint32 `json:"disk"`
	Inside uint32 `json:"inside"`
	Count  uint32 `json:"count"`
}

// nobody is the owner, inside, of what belongs to nobody there.
const nobody = 65534

// maxRanges bounds an IDs that is read from disk.
const maxRanges = 16

func inside(ranges []IDRange, id uint32) uint32 {
	if len(ranges) == 0 {
		return id
	}
	for _, r := range ranges {
		if id >= r.Disk && id-r.Disk < r.Count {
			return r.Inside + (id - r.Disk)
		}
	}
	return nobody
}

func onDisk(ranges []IDRange, id uint32) (uint32, error) {
	if len(ranges) == 0 {
		return id, nil
	}
	for _, r := range ranges {
		if id >= r.Inside && id-r.Inside < r.Count {
			return r.Disk + (id - r.Inside), nil
		}
	}
	return 0, bailey.Errorf(bailey.CodeNotAvailable, "make the layer's files", "do it as root, or with subordinate ids for this user",
		"there are files of the id %d in it, which this user cannot make", id)
}

// valid says whether ids can have been written by this package.
func (ids IDs) valid() bool {
	for _, list := range [][]IDRange{ids.UID, ids.GID} {
		if len(list) > maxRanges {
			return false
		}
		for _, r := range list {
			if r.Count == 0 || r.Disk+r.Count < r.Disk || r.Inside+r.Count < r.Inside {
				return false
			}
		}
	}
	return true
}
