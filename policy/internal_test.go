package policy_test

import (
	"testing"

	"github.com/bailey-sandbox/bailey/policy"
)

func TestInternal(t *testing.T) {
	for text, want := range map[string]bool{
		"hosts: [example.com]":                               false,
		"addresses: [8.8.4.4]":                               false,
		"addresses: ['2606:4700::1']":                        false,
		"addresses: [127.0.0.1]":                             true,
		"addresses: ['::1']":                                 true,
		"addresses: ['::ffff:127.0.0.1']":                    true,
		"addresses: ['64:ff9b::7f00:1']":                     true,
		"addresses: ['2002:7f00:1::']":                       true,
		"addresses: [0.0.0.0]":                               true,
		"addresses: [10.1.0.0/16]":                           true,
		"addresses: [100.64.0.1]":                            true,
		"addresses: ['fd00::1']":                             true,
		"addresses: [198.18.0.1]":                            true,
		"hosts: [example.com]\n      internal: [10.0.0.0/8]": true,
		"addresses: [127.0.0.1]\n      action: deny":         false,
	} {
		p, err := policy.Parse([]byte("version: 1\negress:\n  rules:\n    - name: x\n      " + text + "\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := p.Internal(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
