package ca

import "path"

// Variables that name a file of authorities and replace a program's own: the
// file must be the system's roots and ours.
var replace = []string{
	"SSL_CERT_FILE",        // OpenSSL, Go, Ruby, rustls-native-certs, httpx, uv
	"REQUESTS_CA_BUNDLE",   // Python requests
	"CURL_CA_BUNDLE",       // curl, Python requests
	"GIT_SSL_CAINFO",       // git
	"CARGO_HTTP_CAINFO",    // cargo
	"AWS_CA_BUNDLE",        // AWS tools
	"PIP_CERT",             // pip
	"npm_config_cafile",    // npm
	"NIX_SSL_CERT_FILE",    // nix
	"BUNDLE_SSL_CA_CERT",   // bundler
	"HEX_CACERTS_PATH",     // hex
	"HTTPLIB2_CA_CERTS",    // httplib2
	"PERL_LWP_SSL_CA_FILE", // libwww-perl
	"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
}

// Variables that name a file to add to a program's own authorities.
var add = []string{
	"NODE_EXTRA_CA_CERTS", // Node
	"DENO_CERT",           // Deno
}

// Names that Files gives to its files in Layout.Dir.
const (
	bundleName = "bundle.pem"
	certName   = "ca.pem"
)

// Env gives the variables, NAME=VALUE, that make programs trust the authority.
// dir is Layout.Dir of the Files. It holds a hash name too, for OpenSSL's
// SSL_CERT_DIR.
func Env(dir string) []string {
	var env []string
	for _, name := range replace {
		env = append(env, name+"="+path.Join(dir, bundleName))
	}
	for _, name := range add {
		env = append(env, name+"="+path.Join(dir, certName))
	}
	return append(env, "SSL_CERT_DIR="+dir)
}
