package inject

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// The examples of the Amazon S3 API reference, with its keys.
const (
	exampleKey  = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	exampleDate = "20130524T000000Z"
)

func TestSignatureExamplesOfTheReference(t *testing.T) {
	for _, c := range []struct{ name, method, url, signed, headers, payload, want string }{
		{"get object", "GET", "https://examplebucket.s3.amazonaws.com/test.txt", "host;range;x-amz-content-sha256;x-amz-date", "Range: bytes=0-9", emptyHash,
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"put object", "PUT", "https://examplebucket.s3.amazonaws.com/test$file.text", "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "Date: Fri, 24 May 2013 00:00:00 GMT\nX-Amz-Storage-Class: REDUCED_REDUNDANCY",
			"44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		{"lifecycle", "GET", "https://examplebucket.s3.amazonaws.com/?lifecycle", "host;x-amz-content-sha256;x-amz-date", "", emptyHash,
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"list", "GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "host;x-amz-content-sha256;x-amz-date", "", emptyHash,
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r, err := http.NewRequest(c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.SplitSeq(c.headers, "\n") {
			if name, value, ok := strings.Cut(l, ": "); ok {
				r.Header.Set(name, value)
			}
		}
		r.Header.Set("X-Amz-Date", exampleDate)
		r.Header.Set("X-Amz-Content-Sha256", c.payload)
		s := &signature{date: "20130524", region: "us-east-1", service: "s3", signedHeaders: strings.Split(c.signed, ";")}
		_, canonical := s.canonical(r, c.payload)
		h := sha256.Sum256([]byte(canonical))
		if got := hex.EncodeToString(sum(signingKey(exampleKey, s), awsAlgorithm+"\n"+exampleDate+"\n"+s.scope()+"\n"+hex.EncodeToString(h[:]))); got != c.want {
			t.Errorf("%s: %s, from\n%s", c.name, got, canonical)
		}
	}
}

// TestChunkExampleOfTheReference signs the three chunks of the reference.
func TestChunkExampleOfTheReference(t *testing.T) {
	s := &signature{date: "20130524", region: "us-east-1", service: "s3"}
	zero := strings.Repeat("0", 64)
	body := func(a, b, c string) string {
		return "10000;chunk-signature=" + a + "\r\n" + strings.Repeat("a", 65536) + "\r\n400;chunk-signature=" + b + "\r\n" + strings.Repeat("a", 1024) + "\r\n0;chunk-signature=" + c + "\r\n\r\n"
	}
	const seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
	in := iotest.HalfReader(strings.NewReader(body(zero, zero, zero)))
	got, err := io.ReadAll(newChunks(io.NopCloser(in), signingKey(exampleKey, s), exampleDate, s.scope(), seed, false))
	if err != nil {
		t.Fatal(err)
	}
	want := body("ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648", "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9")
	if string(got) != want {
		t.Error("the chunks' signatures differ from the reference's")
	}
}

// TestTrailerExampleOfTheReference: chunks with a signed trailer.
func TestTrailerExampleOfTheReference(t *testing.T) {
	s := &signature{date: "20130524", region: "us-east-1", service: "s3"}
	zero := strings.Repeat("0", 64)
	body := func(a, b, c, d string) string {
		return "10000;chunk-signature=" + a + "\r\n" + strings.Repeat("a", 65536) + "\r\n400;chunk-signature=" + b + "\r\n" + strings.Repeat("a", 1024) +
			"\r\n0;chunk-signature=" + c + "\r\nx-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:" + d + "\r\n\r\n"
	}
	const seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
	got, err := io.ReadAll(newChunks(io.NopCloser(strings.NewReader(body(zero, zero, zero, zero))), signingKey(exampleKey, s), exampleDate, s.scope(), seed, true))
	if err != nil {
		t.Fatal(err)
	}
	want := body("b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2", "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7", "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992", "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435")
	if string(got) != want {
		t.Errorf("the signatures differ from the reference's: %s", got[len(got)-300:])
	}
}

// signWith signs a request as a client with these keys does.
func signWith(t *testing.T, r *http.Request, creds aws.Credentials, service, payload string) {
	t.Helper()
	if payload != "" && service == "s3" {
		r.Header.Set("X-Amz-Content-Sha256", payload)
	}
	err := v4.NewSigner().SignHTTP(t.Context(), creds, r, payload, service, "eu-west-1", time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = service == "s3"
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSignedRequestsAreSignedAnew: what a client signs with placeholders comes
// out as Amazon's own signer signs it with the keys (T62, S16).
func TestSignedRequestsAreSignedAnew(t *testing.T) {
	k := newKit(t)
	placeholders := aws.Credentials{AccessKeyID: k.ph["id"], SecretAccessKey: k.ph["key"]}
	keys := aws.Credentials{AccessKeyID: awsID, SecretAccessKey: awsKey}
	hash := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	for _, c := range []struct{ name, line, headers, body, service, payload string }{
		{"get", "GET https://s3.aws.test/bucket/a%20b/c~d?x=1&a=%2F&b", "X-Amz-Meta-A:  two  words ", "", "s3", emptyHash},
		{"range", "GET https://s3.aws.test/bucket/key", "Range: bytes=0-99", "", "s3", emptyHash},
		{"put", "PUT https://s3.aws.test/bucket/key", "Content-Type: text/plain", "hello", "s3", hash("hello")},
		{"unsigned", "PUT https://s3.aws.test/bucket/key", "", "hello", "s3", unsignedPayload},
		{"large, hash given", "PUT https://s3.aws.test/bucket/key", "", strings.Repeat("x", 3<<20), "s3", hash(strings.Repeat("x", 3<<20))},
		{"query api", "POST https://sts.aws.test/", "Content-Type: application/x-www-form-urlencoded; charset=utf-8", "Action=GetCallerIdentity&Version=2011-06-15", "sts", hash("Action=GetCallerIdentity&Version=2011-06-15")},
		{"path encoded twice", "GET https://sts.aws.test/a%20b/c", "", "", "execute-api", emptyHash},
	} {
		for _, token := range []bool{false, true} {
			placeholders, keys := placeholders, keys
			if token {
				placeholders.SessionToken, keys.SessionToken = k.ph["session"], awsToken
			}
			r, want := k.raw(c.line, c.headers, c.body), k.raw(c.line, c.headers, c.body)
			signWith(t, r, placeholders, c.service, c.payload)
			signWith(t, want, keys, c.service, c.payload)
			used, err := k.Request(t.Context(), r, k.act(r), k.rule("aws"))
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if got := r.Header.Get("Authorization"); got != want.Header.Get("Authorization") {
				t.Errorf("%s: signed as\n%s\nand not\n%s", c.name, got, want.Header.Get("Authorization"))
			}
			if got := r.Header.Get("X-Amz-Security-Token"); got != keys.SessionToken {
				t.Errorf("%s: the session token is %q", c.name, got)
			}
			if n := 2; len(used) != n && !token || token && len(used) != 3 {
				t.Errorf("%s: used %v", c.name, used)
			}
			if c.body != "" && read(t, r.Body) != c.body {
				t.Errorf("%s: the body changed", c.name)
			}
			if strings.Contains(c.headers, "Range") && r.Header.Get("Range") == "" {
				t.Errorf("%s: the range is gone, which breaks clients that download in parts", c.name)
			}
		}
	}
}

// TestChunkedUploads: aws s3 cp of a large file, 100 MB in signed chunks, with
// constant memory and the length it announced (T62).
func TestChunkedUploads(t *testing.T) {
	k := newKit(t)
	const size, chunk = 100 << 20, 1 << 20
	data := strings.Repeat("0123456789abcdef", chunk/16)
	line := fmt.Sprintf("%x;chunk-signature=%s\r\n", chunk, strings.Repeat("0", 64))
	last := "0;chunk-signature=" + strings.Repeat("0", 64) + "\r\n\r\n"
	var parts []io.Reader
	for range size / chunk {
		parts = append(parts, strings.NewReader(line), strings.NewReader(data), strings.NewReader("\r\n"))
	}
	length := int64(size/chunk*(len(line)+chunk+2) + len(last))
	r := k.raw("PUT https://s3.aws.test/bucket/big", "Content-Encoding: aws-chunked\nX-Amz-Decoded-Content-Length: 104857600", "")
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(append(parts, strings.NewReader(last))...)), length
	signWith(t, r, aws.Credentials{AccessKeyID: k.ph["id"], SecretAccessKey: k.ph["key"]}, "s3", streamingPayload)
	if _, err := k.Request(t.Context(), r, k.act(r), k.rule("aws")); err != nil {
		t.Fatal(err)
	}
	s, ok := parseSignature(r.Header.Get("Authorization"))
	if !ok || s.id != awsID {
		t.Fatalf("signed as %s", r.Header.Get("Authorization"))
	}
	// A server's side: check each chunk.
	_, seed, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	key, previous := signingKey(awsKey, s), seed
	buf := make([]byte, len(line)+chunk+2)
	for i := range size / chunk {
		if _, err := io.ReadFull(r.Body, buf); err != nil {
			t.Fatal(err)
		}
		h := sha256.Sum256(buf[len(line) : len(line)+chunk])
		previous = hex.EncodeToString(sum(key, "AWS4-HMAC-SHA256-PAYLOAD\n20260304T050607Z\n"+s.scope()+"\n"+previous+"\n"+emptyHash+"\n"+hex.EncodeToString(h[:])))
		if want := fmt.Sprintf("%x;chunk-signature=%s\r\n", chunk, previous); string(buf[:len(line)]) != want || string(buf[len(line):len(line)+chunk]) != data {
			t.Fatalf("chunk %d begins with %q, not %q", i, buf[:len(line)], want)
		}
	}
	if rest := read(t, r.Body); len(rest) != len(last) || r.ContentLength != length {
		t.Errorf("the end is %q, the length %d", rest, r.ContentLength)
	}
}

func TestSignaturesThatAreRefused(t *testing.T) {
	k := newKit(t)
	zero := strings.Repeat("0", 64)
	auth := func(id, rest string) string {
		return "Authorization: AWS4-HMAC-SHA256 Credential=" + id + "/20260304/eu-west-1/s3/aws4_request, " + rest
	}
	good := "SignedHeaders=host;x-amz-date, Signature=" + zero
	date := "\nX-Amz-Date: 20260304T050607Z\nX-Amz-Content-Sha256: " + emptyHash
	const host = "GET https://s3.aws.test/"
	for _, c := range []struct{ name, line, headers, body, rule, reason string }{
		{"another host", "GET https://free.test/", auth("{id}", good) + date, "", "free", Misdirected},
		{"the secret key as id", host, auth("{key}x", good) + date, "", "aws", Misdirected},
		{"not for signing", "GET https://api.everything.test/", auth("{api}", good) + date, "", "everything", Misdirected},
		{"own keys", host, auth("AKIAATTACKER", good) + date, "", "aws", ForeignCredential},
		{"no date", host, auth("{id}", good), "", "aws", Signature},
		{"another date", host, auth("{id}", good) + "\nX-Amz-Date: 20260305T050607Z", "", "aws", Signature},
		{"host not signed", host, auth("{id}", "SignedHeaders=x-amz-date, Signature="+zero) + date, "", "aws", Signature},
		{"no signature", host, auth("{id}", "SignedHeaders=host") + date, "", "aws", Signature},
		{"4A", host, "Authorization: AWS4-ECDSA-P256-SHA256 Credential={id}/20260304/s3/aws4_request, SignedHeaders=host, Signature=00" + date, "", "aws", Signature},
		{"streaming 4A", host, auth("{id}", good) + "\nX-Amz-Date: 20260304T050607Z\nX-Amz-Content-Sha256: STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "", "aws", Signature},
		{"streaming without a body", host, auth("{id}", good) + "\nX-Amz-Date: 20260304T050607Z\nX-Amz-Content-Sha256: " + streamingPayload, "", "aws", Signature},
		{"presigned", host + "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={id}%2F20260304&X-Amz-Signature=" + zero, "", "", "aws", Signature},
		{"own token", host, auth("{id}", good) + date + "\nX-Amz-Security-Token: attacker", "", "aws", ForeignCredential},
		{"another's token", host, auth("{id}", good) + date + "\nX-Amz-Security-Token: {github}", "", "aws", Misdirected},
		{"key in a header", host, "X-Any: {key}", "", "aws", Misdirected},
		{"key in a body", host, auth("{id}", good) + date, "{key}", "aws", Misdirected},
		{"bearer", host, "Authorization: Bearer {id}", "", "aws", Misdirected},
		{"plain http", "GET http://s3.aws.test/", auth("{id}", good) + date, "", "aws", PlainHTTP},
	} {
		r := k.raw(c.line, c.headers, c.body)
		_, err := k.Request(t.Context(), r, k.act(r), k.rule(c.rule))
		if !k.refusedFor(err, c.reason) {
			t.Errorf("that was %s", c.name)
		}
	}
	for name, body := range map[string]string{
		"no chunk": "hello", "no signature": "5\r\nhello\r\n", "cut": "5;chunk-signature=" + zero + "\r\nhel", "more behind the end": "0;chunk-signature=" + zero + "\r\n\r\nmore",
		"too large": "ffffffff;chunk-signature=" + zero + "\r\n", "no end": "1;chunk-signature=" + zero + "\r\nxy\r\n", "long line": strings.Repeat("1", 10_000),
	} {
		_, err := io.ReadAll(newChunks(io.NopCloser(strings.NewReader(body)), []byte("k"), exampleDate, "s", zero, name == "trailer"))
		if !k.refusedFor(err, Signature) {
			t.Errorf("that was %s", name)
		}
	}
	k.held.Put(&secrets.Current{Name: "AWS_KEY", Version: 2})
	r := k.raw(host, auth("{id}", good)+date, "")
	_, err := k.Request(t.Context(), r, k.act(r), k.rule("aws"))
	k.refusedFor(err, Revoked)
}

func FuzzSignatureHeader(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=AKIA/20260304/eu-west-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=" + strings.Repeat("0", 64))
	f.Add("AWS4-HMAC-SHA256 Credential=a/b/20260304/r/s/aws4_request,SignedHeaders=host,Signature=" + strings.Repeat("f", 64))
	f.Add("AWS4-HMAC-SHA256 ")
	f.Fuzz(func(t *testing.T, v string) {
		s, ok := parseSignature(v)
		if !ok {
			return
		}
		if strings.ContainsAny(s.scope()+s.id+strings.Join(s.signedHeaders, ""), "\r\n ,;=\x00") && !strings.Contains(s.id, "=") {
			t.Errorf("%q became %+v", v, s)
		}
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Host: "h", Header: http.Header{}}
		signed, canonical := s.canonical(r, emptyHash)
		if !strings.Contains(canonical, "\nhost:h\n") || strings.Contains(signed, " ") {
			t.Errorf("%q is signed as %q", v, canonical)
		}
	})
}

func FuzzChunks(f *testing.F) {
	zero := strings.Repeat("0", 64)
	f.Add("5;chunk-signature="+zero+"\r\nhello\r\n0;chunk-signature="+zero+"\r\n\r\n", false)
	f.Add("0;chunk-signature="+zero+"\r\nx-amz-checksum-crc32:AAAA\r\nx-amz-trailer-signature:"+zero+"\r\n\r\n", true)
	f.Fuzz(func(t *testing.T, body string, trailer bool) {
		out, err := io.ReadAll(newChunks(io.NopCloser(strings.NewReader(body)), []byte("k"), exampleDate, "s", zero, trailer))
		if err == nil && len(out) != len(body) {
			t.Errorf("%d bytes became %d", len(body), len(out))
		}
	})
}
