package project

import (
	"github.com/bailey-sandbox/bailey"
)

// Load gives the settings of the workspace's project file, if a person trusts
// it, with a note that is Fine. One that is not trusted, or has changed since, or cannot be read safely,
// is ignored with a note; if required is true it is an error with the code
// untrusted instead, and an absent one is one with not_found. A trusted file
// that is malformed, or names something outside of the workspace, is always an error.
// An untrusted file is not even parsed, and one whose policy has changed is as
// untrusted as one that has changed itself. workspace is a real path.
func Load(workspace string, store *Store, required bool) (Settings, []Note, error) {
	f, err := Open(workspace)
	if err != nil {
		if required {
			return Settings{}, nil, err
		}
		return Settings{}, []Note{{Field: FileName, Text: "ignored: " + err.Error()}}, nil
	}
	if f == nil {
		if required {
			return Settings{}, nil, bailey.Errorf(bailey.CodeNotFound, "read "+FileName, "make one, or do not require it", "there is none in %s", workspace)
		}
		return Settings{}, nil, nil
	}
	untrusted := func(why string) (Settings, []Note, error) {
		const fix = "read it, then run `bailey trust`"
		if required {
			return Settings{}, nil, bailey.Errorf(bailey.CodeUntrusted, "use "+FileName, fix, "%s", why)
		}
		return Settings{}, []Note{{Field: FileName, Text: "ignored: " + why + "; " + fix}}, nil
	}
	if !store.Trusted(f.Path, f.Hash) {
		if store.known(f.Path) {
			return untrusted("it has changed since it was trusted")
		}
		return untrusted("nobody has trusted it yet")
	}
	s, err := Parse(f.Data, workspace)
	if err != nil {
		return Settings{}, nil, err
	}
	// From here on what the file names is known by its real place.
	if s.Image != "" {
		if s.Image, err = Beneath(workspace, s.Image); err != nil {
			return Settings{}, nil, err
		}
	}
	for i := range s.Mounts {
		if s.Mounts[i].Source, err = Beneath(workspace, s.Mounts[i].Source); err != nil {
			return Settings{}, nil, err
		}
	}
	if s.Policy != nil {
		if s.Policy, err = OpenPolicy(workspace, s.Policy); err != nil {
			return Settings{}, nil, err
		}
		if !store.Trusted(s.Policy.Path, s.Policy.Hash) {
			return untrusted("the policy " + s.Policy.Path + " has changed since it was trusted")
		}
	}
	return s, []Note{{Field: FileName, Text: "used, as you have trusted it, with SHA-256 " + f.Hash, Fine: true}}, nil
}
