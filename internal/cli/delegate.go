package cli

// delegateCommand becomes baileyd, which has the same command: what it needs
// (CEL, encryption, TLS) would make every start of this program slower.
func delegateCommand(inv *invocation) (int, error) {
	return 0, become("baileyd", append([]string{"bailey", inv.Name}, inv.Args...))
}
