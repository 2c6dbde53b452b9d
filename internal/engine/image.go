package engine

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/registry"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/tool"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// images are the engine's images and templates.
type images struct {
	store *image.Store
	tool  tool.Tool

	mu     sync.Mutex
	builds map[string]*running // by the template's name
}

// openImages opens the image store. What an image is made of is read by other
// processes; this one uses what they have made.
func (e *Engine) openImages(ctx context.Context) error {
	t := tool.Tool{Daemon: e.opt.Daemon, Home: e.home}
	store, err := image.Open(t.Store(), unpack.DefaultLimits)
	if err != nil {
		return err
	}
	e.images.store, e.images.tool, e.images.builds = store, t, map[string]*running{}
	e.hooks.grounds = append(e.hooks.grounds, e.groundsOfBoxes, e.groundsOfSnapshots)
	e.hooks.orphans = append(e.hooks.orphans, e.orphanImages)
	e.hooks.opened = append(e.hooks.opened, e.openDisks, e.settleBuilds)
	e.hooks.closing = append(e.hooks.closing, e.endBuilds)
	return nil
}

// groundsOfBoxes are the images of sandboxes that have not ended.
func (e *Engine) groundsOfBoxes(context.Context) (digests []string, err error) {
	for _, b := range e.list() {
		if d := b.record().Digest; d != "" {
			digests = append(digests, d)
		}
	}
	return digests, nil
}

// groundsOfSnapshots are the images of snapshots.
func (e *Engine) groundsOfSnapshots(ctx context.Context) (digests []string, err error) {
	held, err := e.snapshotDigests(ctx)
	for d, ids := range held {
		for range ids {
			digests = append(digests, d)
		}
	}
	return digests, err
}

// holders counts what stands on each image, by its digest.
func (e *Engine) holders(ctx context.Context) (map[string]int, error) {
	n := map[string]int{}
	for _, grounds := range e.hooks.grounds {
		list, err := grounds(ctx)
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			n[d]++
		}
	}
	return n, nil
}

// templateNames begins names in the store of images that templates have.
const templateNames = "template/"

// registries reads the configuration of registries, which may change at any time.
func (e *Engine) registries() (registry.Config, error) {
	return registry.Load(filepath.Join(e.home, registry.ConfigFile))
}

// isPath says whether a caller on the host means a file by an image's name.
func isPath(who Caller, ref string) bool { return who.Local && path.IsAbs(ref) }

// haveImage finds an image in the store: by its whole name, by one that the
// configuration completes, or by a digest.
func (e *Engine) haveImage(ref string) (image.Pulled, bool, error) {
	if strings.HasPrefix(ref, "sha256:") {
		all, err := e.images.store.Names()
		if err != nil {
			return image.Pulled{}, false, err
		}
		i := slices.IndexFunc(all, func(n image.Name) bool { return !isHidden(n.Name) && (n.Digest == ref || n.Image == ref) })
		if i < 0 {
			return image.Pulled{}, false, nil
		}
		ref = all[i].Name
	}
	if p, ok := e.images.store.Named(ref); ok && !isHidden(ref) {
		return p, true, nil
	}
	c, err := e.registries()
	if err != nil {
		return image.Pulled{}, false, err
	}
	r, err := c.Parse(ref)
	if err != nil {
		return image.Pulled{}, false, err
	}
	if r.Digest == "" {
		p, ok := e.images.store.Named(r.String())
		return p, ok, nil
	}
	// It may have been pulled by a tag.
	all, err := e.images.store.Names()
	for _, n := range all {
		if n.Digest == r.Digest && strings.HasPrefix(n.Name, r.Host+"/"+r.Repository) && pinned(n) == r.String() {
			p, ok := e.images.store.Named(n.Name)
			return p, ok, nil
		}
	}
	return image.Pulled{}, false, err
}

func isTemplateName(name string) bool { return strings.HasPrefix(name, templateNames) }

// isHidden says that a name is the engine's own: no reference is like it.
func isHidden(name string) bool {
	return isTemplateName(name) || strings.HasPrefix(name, image.ImportedNames)
}

// image gives an image, pulling it if the store has none of that name.
func (e *Engine) image(ctx context.Context, ref string, each func(api.Progress)) (image.Pulled, error) {
	p, ok, err := e.haveImage(ref)
	if ok || err != nil {
		return p, err
	}
	if strings.HasPrefix(ref, "sha256:") {
		return p, noImage(ref)
	}
	return e.images.tool.Pull(ctx, ref, each)
}

func noImage(ref string) error {
	return bailey.Errorf(bailey.CodeNotFound, "use the image "+ref, "pull it by its name", "there is no such image here")
}

// originOfImage is what a sandbox of an image starts from: of a file or folder of
// the host, for callers there, or of a registry.
func (e *Engine) originOfImage(ctx context.Context, who Caller, ref string) (*origin, error) {
	if isPath(who, ref) {
		root, err := e.images.tool.Prepare(ctx, ref)
		if err != nil {
			return nil, err
		}
		return &origin{Rootfs: &root, Image: ref}, nil
	}
	p, err := e.image(ctx, ref, nil)
	if err != nil {
		return nil, err
	}
	return &origin{Rootfs: &p.Root, Image: pinned(p.Name), Digest: p.Name.Image}, nil
}

// pinned is an image's name with its digest in the place of a tag.
func pinned(n image.Name) string {
	name, _, _ := strings.Cut(n.Name, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name + "@" + n.Digest
}

// hostOrigin is the built-in template over the host's own tools.
func (e *Engine) hostOrigin(ctx context.Context) (*origin, error) {
	root, err := e.hostRoot.get(ctx, e)
	if err != nil {
		return nil, err
	}
	return &origin{Rootfs: root, Template: image.HostSource}, nil
}

// PullImage pulls an image; each is told how far it is, at last with the image.
func (e *Engine) PullImage(ctx context.Context, who Caller, ref string, each func(api.Progress)) (api.Image, error) {
	if each == nil {
		each = func(api.Progress) {}
	}
	p, err := e.images.tool.Pull(ctx, ref, each)
	if err != nil {
		return api.Image{}, err
	}
	held, err := e.holders(ctx)
	if err != nil {
		return api.Image{}, err
	}
	i := imageOf(p.Name, held)
	each(api.Progress{Step: "pulled", Done: i.Size, Total: i.Size, Image: &i})
	return i, nil
}

func imageOf(n image.Name, held map[string]int) api.Image {
	return api.Image{Ref: n.Name, Digest: n.Digest, Size: n.Size, Layers: n.Layers, Created: n.Created, Refs: held[n.Image]}
}

// Images lists images that were pulled.
func (e *Engine) Images(ctx context.Context, who Caller) ([]api.Image, error) {
	held, err := e.holders(ctx)
	if err != nil {
		return nil, err
	}
	names, err := e.images.store.Names()
	if err != nil {
		return nil, err
	}
	var list []api.Image
	for _, n := range names {
		if !isHidden(n.Name) {
			list = append(list, imageOf(n, held))
		}
	}
	slices.SortFunc(list, func(a, b api.Image) int { return strings.Compare(a.Ref, b.Ref) })
	return list, nil
}

// DeleteImage removes an image, by its name or digest. One on which something
// stands is an error with code conflict.
func (e *Engine) DeleteImage(ctx context.Context, who Caller, ref string) error {
	p, ok, err := e.haveImage(ref)
	if err != nil {
		return err
	}
	if !ok {
		return noImage(ref)
	}
	held, err := e.holders(ctx)
	if err != nil {
		return err
	}
	if n := held[p.Name.Image]; n > 0 {
		return bailey.Errorf(bailey.CodeConflict, "delete the image "+ref, "delete those first", "%d sandboxes or snapshots stand on it", n)
	}
	if err := e.images.store.DropName(p.Name.Name); err != nil {
		return err
	}
	return e.clearImages(ctx)
}

// clearImages removes what nothing needs any more; while something is pulled or
// built that is left for later.
func (e *Engine) clearImages(ctx context.Context) error {
	_, err := e.orphanImages(ctx, false)
	return err
}

// orphanImages are images, layers and blobs that nothing needs.
func (e *Engine) orphanImages(ctx context.Context, dry bool) ([]api.Orphan, error) {
	held, err := e.holders(ctx)
	if err != nil {
		return nil, err
	}
	keep := map[string]bool{}
	for d := range held {
		keep[d] = true
	}
	gone, err := e.images.store.Collect(keep, e.clock.Now(), dry)
	if bailey.CodeOf(err) == bailey.CodeBusy {
		return nil, nil
	}
	return gone, err
}

// rootOf gives the root file system of an image of the store.
func (e *Engine) rootOf(digest, source string) (rootfs.Root, error) {
	root, ok := e.images.store.Root(digest, source)
	if !ok {
		return root, bailey.Errorf(bailey.CodeStorage, "use the image "+source, "build or pull it again", "it is not whole in the store any more")
	}
	return root, nil
}

// workdirOf gives where commands start that say nothing else: as the spec says, or
// the image, if it has such a folder; "" is the level's own.
func (e *Engine) workdirOf(r *record) string {
	if r.Spec.Workdir != "" || r.Rootfs == nil || !path.IsAbs(r.Rootfs.Config.Workdir) {
		return r.Spec.Workdir
	}
	dir := path.Clean(r.Rootfs.Config.Workdir)
	if f, err := view.New(r.Rootfs.Layers, r.Rootfs.IDs).Stat(dir); err != nil || !f.Mode.IsDir() {
		return ""
	}
	return dir
}
