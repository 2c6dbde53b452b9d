package inject

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/policy"
)

const mark = "QW7MARKX2Z"

const (
	githubValue = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
	apiValue    = `sk-"quoted\and+slashed/value&more=1%<x> y`
	awsID       = "AKIAIOSFODNN7EXAMPLE"
	awsKey      = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	awsToken    = "FwoGZXIvYXdzEBYaDExampleSessionTokenOfThirtyTwoBytesAndMore=="
)

const document = `
version: 1
secrets:
  github:
    secret: GITHUB_TOKEN
    env: GITHUB_TOKEN
    hosts: [api.github.test, git.github.test]
    in: [header, basic]
  api:
    secret: API_KEY
    env: API_KEY
    hosts: [api.everything.test]
    in: [header, basic, query, json, form, websocket, path]
  set:
    secret: SET_KEY
    hosts: [api.set.test]
    header: Authorization
    format: "Bearer {value}"
  id:
    secret: AWS_ID
    env: AWS_ACCESS_KEY_ID
    hosts: [s3.aws.test, sts.aws.test]
    in: [sigv4]
  key:
    secret: AWS_KEY
    env: AWS_SECRET_ACCESS_KEY
    hosts: [s3.aws.test, sts.aws.test]
    in: [sigv4]
  session:
    secret: AWS_TOKEN
    env: AWS_SESSION_TOKEN
    hosts: [s3.aws.test, sts.aws.test]
    in: [sigv4]
egress:
  rules:
    - name: plain-post
      hosts: [api.everything.test]
      methods: [GET, POST, PUT]
      paths: [/plain]
      secret: api
      plain_secrets: true
    - name: bound
      hosts: [api.github.test, git.github.test]
      secret: github
    - name: everything
      hosts: [api.everything.test]
      secret: api
      websocket: true
    - name: set
      hosts: [api.set.test]
      secret: set
    - name: aws
      hosts: [s3.aws.test, sts.aws.test]
      secrets: [id, key, session]
    - name: free
      hosts: [free.test]
`

// kit is a sandbox with secrets.
type kit struct {
	t      testing.TB
	p      *policy.Policy
	held   *secrets.Held
	issuer *Issuer
	*Grants
	ph map[string]string
}

func newKit(t testing.TB) *kit {
	t.Helper()
	p, err := policy.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	held := secrets.NewHeld()
	for name, v := range map[string]string{"GITHUB_TOKEN": githubValue, "API_KEY": apiValue, "SET_KEY": "set-by-the-gate-0123456789", "AWS_ID": awsID, "AWS_KEY": awsKey, "AWS_TOKEN": awsToken} {
		held.Put(&secrets.Current{Name: name, Version: 1, Value: secrets.NewValue([]byte(v))})
	}
	issuer := NewIssuer(held, mark)
	g, err := issuer.Grant(p.Secrets())
	if err != nil {
		t.Fatal(err)
	}
	return &kit{t, p, held, issuer, g, g.Placeholders()}
}

func (k *kit) rule(name string) *policy.Rule {
	k.t.Helper()
	for _, r := range k.p.Rules() {
		if r.Name == name {
			return r
		}
	}
	k.t.Fatalf("there is no rule %s", name)
	return nil
}

// act describes a request to policy, as the gate does.
func (k *kit) act(r *http.Request) policy.Request {
	k.t.Helper()
	scheme, port := policy.HTTPS, uint16(443)
	if r.URL.Scheme == "http" {
		scheme, port = policy.HTTP, 80
	}
	to, err := policy.ParseAuthority(r.URL.Host, port)
	if err != nil {
		k.t.Fatal(err)
	}
	return policy.Request{Stage: policy.Head, To: to, Scheme: scheme, Method: r.Method, Path: r.URL.Path, Header: r.Header}
}

// raw makes a request of "METHOD URL", "Name: value" headers and a body; {name}
// is the placeholder of a binding.
func (k *kit) raw(line, headers, body string) *http.Request {
	k.t.Helper()
	for name, ph := range k.ph {
		line, headers, body = strings.ReplaceAll(line, "{"+name+"}", ph), strings.ReplaceAll(headers, "{"+name+"}", ph), strings.ReplaceAll(body, "{"+name+"}", ph)
	}
	method, url, _ := strings.Cut(line, " ")
	var in io.Reader
	if body != "" {
		in = bytes.NewReader([]byte(body))
	}
	r, err := http.NewRequest(method, url, in)
	if err != nil {
		k.t.Fatal(err)
	}
	if body != "" {
		r.ContentLength = int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	for l := range strings.SplitSeq(headers, "\n") {
		if name, value, ok := strings.Cut(l, ": "); ok {
			r.Header.Add(name, value)
		}
	}
	return r
}

// send lets the gate work on a request and gives what a server would get.
func (k *kit) send(r *http.Request, rule string) (sent string, used []string, err error) {
	k.t.Helper()
	used, err = k.Request(k.t.Context(), r, k.act(r), k.rule(rule))
	if err != nil {
		return "", used, err
	}
	var b bytes.Buffer
	err = r.Write(&b)
	return b.String(), used, err
}

// refusedFor tells that an error is a refusal for a reason, and says no value.
func (k *kit) refusedFor(err error, reason string) bool {
	k.t.Helper()
	var r *act.Refused
	if err == nil || !errors.As(err, &r) {
		k.t.Errorf("it was not refused: %v", err)
		return false
	}
	for _, v := range []string{githubValue, apiValue, awsID, awsKey} {
		if strings.Contains(err.Error(), v) {
			k.t.Errorf("the refusal says a value: %v", err)
		}
	}
	if r.Reason != reason {
		k.t.Errorf("refused for %s, not %s: %v", r.Reason, reason, err)
		return false
	}
	return true
}
