// Package peer starts other programs as peers of Bailey: in the cheapest way there
// is, without a shell between, and crun with the same protections, limits and root
// file system as a sandbox at container level. What it makes lies in the folder
// that it is given.
package peer

// SearchPath is PATH of the programs and of commands in containers.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
