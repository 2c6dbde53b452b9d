package engine

import (
	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/policy"
)

// mayAsk refuses a policy that asks for what is not the caller's to give. Whoever
// writes it is obeyed by a gate that has the host's secrets and is in the host's
// network: secrets and addresses that are not public are for callers on the host and
// administrators, folders and variables of the host for callers there.
func mayAsk(who Caller, p control.Policy) error {
	if who.Local || p.Empty() {
		return nil
	}
	forbidden := func(what, fix, why string) error {
		return bailey.Errorf(bailey.CodeForbidden, what, fix, "%s", why)
	}
	whole, err := readPolicy(p)
	if err != nil {
		return err
	}
	s := whole.Session()
	if len(s.Mounts) > 0 {
		return forbidden("show a folder of the host", "leave mounts out of the policy, or use the unix socket on the host itself", "callers from elsewhere may not name folders of the host")
	}
	if len(s.Env.Pass) > 0 {
		return forbidden("pass variables of the host on", "set them in the policy, or use the unix socket on the host itself", "callers from elsewhere may not see the daemon's environment")
	}
	if who.Admin {
		return nil
	}
	if len(whole.Secrets()) > 0 {
		return forbidden("use secrets of the host", "use a key with the scope admin, or the unix socket on the host itself", "the secrets are not this caller's")
	}
	if whole.Internal() {
		return forbidden("reach addresses that are not public", "use a key with the scope admin, or the unix socket on the host itself", "this caller's sandboxes reach the internet only")
	}
	return nil
}

// readPolicy reads a policy as the gate does.
func readPolicy(p control.Policy) (*policy.Policy, error) {
	var whole *policy.Policy
	var err error
	if p.Document != nil {
		whole, err = policy.Parse(p.Document.Text)
	}
	if err == nil {
		whole, err = policy.Merge(whole, policy.Flags{Allow: p.Allow, Profiles: p.Profiles, Secrets: p.Secrets})
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodePolicyInvalid, "read the policy", "", "%w", err)
	}
	return whole, nil
}
