// Package mirrors has small package registries for the fake internet, each with
// one package called tiny, as the protocols of PyPI (PEP 503), npm, Go modules
// (GOPROXY), Debian and crates.io (sparse index) serve it, a git server that
// wants a password, and a provider of models. Everything is made in memory.
//
// Only tests import it.
package mirrors
