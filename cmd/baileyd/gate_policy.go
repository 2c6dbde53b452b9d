package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/policy"
)

// combine makes one policy of what was asked for.
func combine(asked control.Policy) (*policy.Policy, error) {
	var base *policy.Policy
	name := "the flags"
	if d := asked.Document; d != nil {
		name = d.Name
		var err error
		if base, err = policy.Parse(d.Text); err != nil {
			return nil, policyError(name, err)
		}
	}
	p, err := policy.Merge(base, policy.Flags{Allow: asked.Allow, Profiles: asked.Profiles, Secrets: asked.Secrets})
	if err != nil {
		return nil, policyError(name, err)
	}
	return p, nil
}

// sourceOf says where a policy comes from, for the record.
func sourceOf(asked control.Policy) map[string]string {
	m := map[string]string{}
	if asked.Document != nil {
		m["document"] = asked.Document.Name
	}
	for name, list := range map[string][]string{"allow": asked.Allow, "profiles": asked.Profiles, "secrets": asked.Secrets} {
		if len(list) > 0 {
			m[name] = strings.Join(list, " ")
		}
	}
	return m
}

// policyError gives a policy's error in the form of all others.
func policyError(name string, err error) error {
	what := "use the policy of " + name
	var own *policy.Error
	if errors.As(err, &own) {
		e := *own
		e.Fix = ""
		fix := own.Fix
		if fix == "" {
			fix = "correct it; `bailey policy check` tells more"
		}
		return bailey.Errorf(bailey.CodePolicyInvalid, what, fix, "%s", e.Error())
	}
	return bailey.Errorf(bailey.CodePolicyInvalid, what, "correct it", "%w", err)
}

// sessionOf gives what a policy says of the sandbox itself.
func sessionOf(p *policy.Policy) control.Session {
	s := p.Session()
	out := control.Session{
		MinLevel: s.MinIsolation,
		Limits: bailey.Limits{CPUs: s.Limits.CPUs, Memory: s.Limits.Memory, Pids: s.Limits.Pids, Disk: s.Limits.Disk,
			IO: s.Limits.IO, Output: s.Limits.Output, Timeout: s.Limits.Timeout},
		Env:       slices.Clone(s.Env.Pass),
		AllowRead: s.Paths.AllowRead, AllowWrite: s.Paths.AllowWrite, DenyRead: s.Paths.DenyRead, DenyWrite: s.Paths.DenyWrite,
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env.Set)) {
		out.Env = append(out.Env, name+"="+s.Env.Set[name])
	}
	for _, m := range s.Mounts {
		out.Mounts = append(out.Mounts, control.Mount{Source: m.Source, Target: m.Target, Write: m.Write})
	}
	for _, n := range s.Ports {
		out.Ports = append(out.Ports, int(n))
	}
	return out
}

// notes are what a person should know of a policy before the sandbox starts.
func notes(p *policy.Policy) (list []string) {
	if p.Mode() == policy.Audit {
		list = append(list, "WARNING: the policy is in audit mode: nothing is held back; what it denies is recorded, AND PASSES")
	}
	return list
}

// description tells a model inside what it may reach.
func description(p *policy.Policy) string {
	var b strings.Builder
	b.WriteString("This sandbox reaches the network through a gate, which lets through:\n\n")
	for _, d := range p.Describe() {
		fmt.Fprintf(&b, "%s: %s\n", d.Action, d.Text)
		if d.Note != "" {
			fmt.Fprintf(&b, "    %s\n", d.Note)
		}
	}
	b.WriteString("\nEverything else is denied. A refused HTTP request is answered with status 403 and a\n" +
		"JSON body that says why and how to ask for it. Do not try to go around it.\n")
	if text := p.Session().Description; text != "" {
		b.WriteString("\n" + text + "\n")
	}
	return b.String()
}
