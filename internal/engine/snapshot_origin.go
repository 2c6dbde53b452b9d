package engine

import (
	"context"
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// inherit completes a spec that starts from a snapshot with what travels along with
// one: environment, working folder, user, limits, policy and labels, where the spec
// says nothing else. Of a snapshot that has gone there is nothing to say yet: see
// originOfSnapshot.
func (e *Engine) inherit(ctx context.Context, who Caller, spec api.SandboxSpec) (api.SandboxSpec, error) {
	d, err := e.findSnapshot(ctx, who, spec.Snapshot)
	if err != nil {
		return spec, nil
	}
	from := d.Spec
	spec.Snapshot = d.Snapshot.ID // a name may be another's tomorrow
	spec.Env = merged(from.Env, spec.Env)
	spec.Labels = merged(from.Labels, spec.Labels)
	if spec.Workdir == "" {
		spec.Workdir = from.Workdir
	}
	if spec.User == "" {
		spec.User = from.User
	}
	if spec.Limits == (bailey.Limits{}) {
		spec.Limits = from.Limits
	}
	if spec.Policy == nil && spec.Allow == nil && spec.Profiles == nil && spec.Secrets == nil {
		spec.Policy, spec.Allow, spec.Profiles, spec.Secrets = from.Policy, from.Allow, from.Profiles, from.Secrets
		if d.Imported {
			// It was written elsewhere, and nobody here has vouched for it.
			p, err := policyOf(spec)
			if err == nil {
				err = mayAsk(Caller{}, p)
			}
			if err != nil {
				return spec, bailey.Errorf(bailey.CodeOf(err), "use the policy that came with the snapshot "+d.Snapshot.ID, "read it, and give the policy yourself", "%w", err)
			}
		}
	}
	if spec.Workspace == "" {
		spec.Workspace = from.Workspace
	} else if spec.Workspace != from.Workspace {
		return spec, bailey.Errorf(bailey.CodeUsage, "start from the snapshot "+d.Snapshot.ID, "leave the workspace out", "it has the workspace %q", from.Workspace)
	}
	if spec.Mounts == nil && who.Local {
		spec.Mounts = from.Mounts
	}
	if spec.Volumes == nil {
		spec.Volumes = from.Volumes
	}
	return spec, nil
}

func merged(below, above map[string]string) map[string]string {
	if len(below) == 0 {
		return above
	}
	all := maps.Clone(below)
	maps.Copy(all, above)
	return all
}

// originOfSnapshot finds what a spec starts from that names a snapshot. With a
// fallback, a snapshot that has gone is replaced by it, which the sandbox's notes
// say: found is nil then, and spec names the fallback. release lets go of layers
// that are kept until the sandbox stands on them.
func (e *Engine) originOfSnapshot(ctx context.Context, who Caller, spec *api.SandboxSpec) (found *origin, note string, release func(), err error) {
	nothing := func() {}
	d, err := e.findSnapshot(ctx, who, spec.Snapshot)
	if code := bailey.CodeOf(err); spec.Fallback != "" && (code == bailey.CodeSnapshotGone || code == bailey.CodeNotFound) {
		note = fmt.Sprintf("it starts from the fallback %s: %v", spec.Fallback, err)
		spec.Snapshot = ""
		if image, ok := strings.CutPrefix(spec.Fallback, "image:"); ok {
			spec.Image = image
		} else {
			spec.Template = spec.Fallback
		}
		return nil, note, nothing, nil
	}
	if err != nil {
		return nil, "", nothing, err
	}
	if spec.Isolation != 0 && spec.Isolation != d.Level || spec.MinIsolation > d.Level {
		return nil, "", nothing, bailey.Errorf(bailey.CodeIsolationUnavailable, "start from the snapshot "+d.Snapshot.ID, "start it at that level", "its files are of the level %s", d.Level)
	}
	heads := d.heads()
	e.holdLayers(heads...)
	release = func() { e.releaseLayers(heads...) }
	// It may have gone before the layers were held.
	if d, err = e.findSnapshot(ctx, who, d.Snapshot.ID); err != nil {
		return nil, "", release, err
	}
	began := e.clock.Now()
	verified := true
	for _, root := range d.Roots {
		ok, err := e.layers.Verify(ctx, root.Chain, false)
		if err != nil {
			return nil, "", release, err
		}
		verified = verified && ok
	}
	o, err := e.originFrom(ctx, who, d, "restore")
	if err != nil {
		return nil, "", release, err
	}
	o.Receipt.Verified = verified
	e.sign(o.Receipt, began)
	if d.Imported {
		if err := e.groundOfImported(ctx, who, d, o); err != nil {
			return nil, "", release, err
		}
	}
	return o, "", release, nil
}

// groundOfImported finds the root file system that an imported snapshot stands on:
// the image that came with it, or what its template is here.
func (e *Engine) groundOfImported(ctx context.Context, who Caller, d *snapDoc, o *origin) error {
	if d.Level == bailey.IsolationProcess {
		return nil
	}
	if d.Base {
		root, err := e.images.tool.Prepare(ctx, e.basePath(d.Snapshot.ID))
		if err != nil {
			return err
		}
		o.Rootfs, o.Digest = &root, ""
		return nil
	}
	if path.IsAbs(d.Image) {
		// What comes from elsewhere names no folder of this host.
		return bailey.Errorf(bailey.CodeRestoreIncomplete, "start from the snapshot "+d.Snapshot.ID, "export it with its base",
			"it stands on the folder %s of another host", d.Image)
	}
	ground := api.SandboxSpec{Template: d.Template, Image: d.Image}
	base, err := e.originOf(ctx, who, &ground)
	if err != nil {
		return err
	}
	if base.Digest != d.Digest {
		return bailey.Errorf(bailey.CodeRestoreIncomplete, "start from the snapshot "+d.Snapshot.ID, "import or pull the image that it was made of",
			"it stands on the image %s, and %s is another", d.Digest, base.Digest)
	}
	o.Rootfs = base.Rootfs
	return nil
}
