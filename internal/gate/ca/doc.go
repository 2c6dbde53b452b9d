// Package ca is the certificate authority by which the gate looks into a
// sandbox's TLS. There is one per lineage, so that what one sandbox trusts
// means nothing to another. Certificates follow RFC 5280 as strict clients
// check it. They carry no name constraints: the policy that says which names
// are served may change while a sandbox lives, and its wildcards of one label
// cannot be said in them.
//
// The package also knows where programs look for authorities: variables, files
// of the distributions, hash names for OpenSSL and Java's trust store.
package ca
