package registry

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/bailey-sandbox/bailey"
)

// Ref is an image's place in a registry.
type Ref struct {
	Host       string // HOST[:PORT]
	Repository string // path in the registry
	Tag        string // "" with a digest
	Digest     string // sha256:…, "" without
}

// maxRef is how long a reference may be in bytes.
const maxRef = 1024

// Parse reads a reference: [HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST]. The tag is
// latest when neither is given.
func (c Config) Parse(ref string) (Ref, error) {
	const what = "understand the image's name"
	bad := func(fix, format string, args ...any) (Ref, error) {
		return Ref{}, bailey.Errorf(bailey.CodeUsage, what, fix, format, args...)
	}
	const form = "write HOST/PATH:TAG or HOST/PATH@sha256:DIGEST"
	if ref == "" || len(ref) > maxRef {
		return bad(form, "it is %d bytes long", len(ref))
	}
	first, _, slash := strings.Cut(ref, "/")
	if !slash || !strings.ContainsAny(first, ".:") && first != "localhost" {
		if c.Registry == "" {
			return bad("name the registry as HOST/"+clean(ref)+", or set a default: registry: HOST in "+ConfigFile+" of the data folder",
				"%q does not say which registry it is in", clean(ref))
		}
		ref = c.Registry + "/" + ref
	}
	bare, digest, pinned := strings.Cut(ref, "@")
	parsed, err := name.NewTag(bare)
	if err != nil {
		return bad(form, "%w", err)
	}
	r := Ref{Host: parsed.RegistryStr(), Repository: parsed.RepositoryStr(), Tag: parsed.TagStr()}
	if pinned {
		d, err := name.NewDigest(parsed.Repository.Name() + "@" + digest)
		if err != nil {
			return bad(form, "%w", err)
		}
		r.Tag, r.Digest = "", d.DigestStr()
	}
	return r, nil
}

// String gives the whole reference, host included.
func (r Ref) String() string {
	s := r.Host + "/" + r.Repository
	if r.Digest != "" {
		return s + "@" + r.Digest
	}
	return s + ":" + r.Tag
}

// At gives the reference with a digest in the place of its tag.
func (r Ref) At(digest string) Ref {
	r.Tag, r.Digest = "", digest
	return r
}

// clean is for text of a registry or caller in messages.
func clean(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s), "?")
}
