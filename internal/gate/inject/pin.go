package inject

import (
	"strings"

	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// On a pinned host the only credential is the one that the gate puts in: with a
// key of its own, a sandbox could take data to somebody else's account at an
// allowed host.

func foreign(where string) error {
	return refused(ForeignCredential, where+" is a credential of the sandbox's own; this host has a bound secret, and takes no other")
}

// notCredentials are headers whose names look like a credential's.
var notCredentials = map[string]bool{
	"idempotency-key": true, "x-idempotency-key": true, "sec-websocket-key": true, "surrogate-key": true, "cache-key": true,
	"x-cache-key": true, "x-csrf-token": true, "x-xsrf-token": true, "csrf-token": true, "continuation-token": true,
	"x-continuation-token": true, "x-client-token": true, "x-amz-client-token": true, "x-amz-copy-source-server-side-encryption-customer-key": true,
	"x-amz-server-side-encryption-customer-key": true, "x-goog-encryption-key": true, "x-registry-auth-key": true,
}

// isCredentialHeader tells by a header's name that its value says who asks.
func isCredentialHeader(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "authorization", "proxy-authorization", "cookie", "cookie2", "apikey", "x-apikey", "authentication", "x-auth":
		return true
	}
	if notCredentials[name] || strings.HasPrefix(name, "x-amz-meta-") {
		return false
	}
	name = strings.ReplaceAll(name, "_", "-")
	for _, end := range []string{"-token", "-key", "-secret", "-authorization", "-auth", "-password", "-credential", "-credentials", "-apikey", "-jwt", "-assertion", "-cookie"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	// Token, X-AccessToken. Session-Id is how clients tell requests that belong together.
	name = unspelt.Replace(strings.TrimPrefix(name, "x-"))
	return name != "sessionid" && credentialParameters[name]
}

// longestProtocol is how long a name of a WebSocket protocol may be, in bytes;
// the longest registered ones have some 30.
const longestProtocol = 40

// credentialProtocol tells that one of the offered WebSocket protocols is a
// credential: browsers cannot set headers, and some services take keys there.
func credentialProtocol(v string) bool {
	for p := range strings.SplitSeq(v, ",") {
		p = strings.TrimSpace(p)
		last := p[strings.LastIndexByte(p, '.')+1:]
		if len(p) > longestProtocol || secrets.Prefix([]byte(last)) != "" {
			return true
		}
	}
	return false
}

// credentialParameters are those of queries and forms, without - and _.
var credentialParameters = map[string]bool{
	"key": true, "apikey": true, "token": true, "accesstoken": true, "authtoken": true, "oauthtoken": true, "idtoken": true, "refreshtoken": true,
	"privatetoken": true, "jobtoken": true, "sessiontoken": true, "auth": true, "authorization": true, "sig": true, "signature": true, "secret": true,
	"clientsecret": true, "clientassertion": true, "assertion": true, "password": true, "passwd": true, "pwd": true, "jwt": true, "credential": true,
	"credentials": true, "subscriptionkey": true, "appkey": true, "applicationkey": true, "awsaccesskeyid": true, "oauthsignature": true, "sessionid": true,
	"xamzcredential": true, "xamzsignature": true, "xamzsecuritytoken": true, "xgoogcredential": true, "xgoogsignature": true, "googleaccessid": true,
	"xossecuritytoken": true, "xosssignature": true, "ossaccesskeyid": true,
}

// unspelt takes out of a parameter's name what servers read over, or take for
// one another.
var unspelt = strings.NewReplacer("-", "", "_", "", ".", "", " ", "", "+", "")

// isCredentialParameter tells by a parameter's name that its value says who asks.
// token[] and token[0] are token where they are read as lists.
func isCredentialParameter(name string) bool {
	name, _, _ = strings.Cut(strings.ToLower(name), "[")
	return credentialParameters[unspelt.Replace(name)]
}
