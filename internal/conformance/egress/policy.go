package egress

import (
	"fmt"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// Secret is a secret of the suite: its name in the store, which variable has its
// placeholder, and the only host that may see its value.
type Secret struct{ Key, Env, Host, Value string }

// Secrets gives the suite's secrets, with values that no other run has.
func Secrets(seed string) []Secret {
	list := []Secret{
		{Key: "provider", Host: plan.Provider}, {Key: "echo", Host: plan.Echo}, {Key: "other", Host: plan.Other},
		{Key: "plain", Host: plan.Plain}, {Key: "places", Host: plan.Places}, {Key: "absent", Host: plan.Absent},
	}
	for i := range list {
		s := &list[i]
		s.Env = strings.ToUpper(s.Key) + "_KEY"
		s.Value = "sk-" + plan.Canary(seed, "secret "+s.Key, true)
	}
	return list
}

// Name is what the secret is called in the store.
func (s Secret) Name() string { return strings.ToUpper(s.Key) + "_TOKEN" }

// Policy is the document that the cases run under.
func Policy() string {
	var b strings.Builder
	b.WriteString("version: 1\negress:\n  rules:\n")
	rule := func(name, rest string) { fmt.Fprintf(&b, "  - {name: %s, %s}\n", name, rest) }
	host := func(h string) string { return fmt.Sprintf("hosts: [%q]", h) }
	rule("marker", host(plan.Marker)+", protocol: http, methods: [GET]")
	for _, h := range []string{plan.OK, plan.Unbound, plan.Expired, plan.Misnamed, plan.Unsigned, plan.Rebinds, plan.Mixed, plan.Alias, plan.Hints, plan.Moves, plan.Cased, plan.German} {
		rule(strings.TrimSuffix(h, ".test"), host(h))
	}
	rule("other", host(plan.Other)+", secret: other")
	rule("provider", host(plan.Provider)+", methods: [POST], paths: [/v1/chat], secret: provider")
	rule("provider-debug", host(plan.Provider)+`, methods: [GET], paths: ["/debug/**"]`)
	rule("echo", host(plan.Echo)+", secret: echo")
	rule("readonly", host(plan.ReadOnly)+`, methods: [GET, HEAD], paths: ["/pub/**"]`)
	rule("socket", host(plan.Socket)+", websocket: true")
	rule("splice", host(plan.Spliced)+", tls: splice")
	rule("plain", host(plan.Plain)+", secret: plain")
	rule("ported", host(plan.Ported)+`, ports: ["8443"]`)
	rule("asks", host(plan.Asks)+", action: ask")
	rule("mail", host(plan.Mail)+`, protocol: tcp, ports: ["25"]`)
	rule("database", host(plan.Database)+`, protocol: tcp, ports: ["5432"]`)
	rule("shell", host(plan.Shell)+`, protocol: tcp, ports: ["22"]`)
	rule("wild", host("*."+plan.Apex))
	rule("deep", host("**."+plan.DeepApex))
	rule("range", host("*."+plan.Range))
	rule("denied", host(plan.Denied))
	rule("denied-after-all", host(plan.Denied)+", action: deny")
	rule("places", host(plan.Places)+", websocket: true, secret: places")
	rule("absent", host(plan.Absent)+", secret: absent")
	b.WriteString("secrets:\n")
	for _, s := range Secrets("") {
		in := ""
		switch s.Key {
		case "places":
			in = ", in: [header, basic, query, json, form, websocket]"
		case "absent":
			in = ", in: [header, query]"
		}
		fmt.Fprintf(&b, "  %s: {secret: %s, env: %s%s}\n", s.Key, s.Name(), s.Env, in)
	}
	return b.String()
}
