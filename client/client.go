package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// The environment variables that fill in what Options leave out.
const (
	EnvHome = "BAILEY_HOME"
	EnvURL  = "BAILEY_URL"
	EnvKey  = "BAILEY_KEY"
)

// SocketName is the name of the daemon's socket in the data folder.
const SocketName = "bailey.sock"

// Options say where the daemon is. The zero value is the daemon of this machine
// and user, or what the environment variables name.
type Options struct {
	// URL is unix:///PATH of a socket, or http:// or https:// with a host; default
	// $BAILEY_URL, else the socket in Home. http is for loopback addresses only,
	// because the key would be readable on the way.
	URL string
	// Key is the API key, for URLs other than unix; default $BAILEY_KEY.
	Key string
	// Home is the data folder whose socket is used; default $BAILEY_HOME, else
	// /var/lib/bailey for root and ~/.local/share/bailey for others.
	Home string
	// CAFile has certificates, as PEM, to trust instead of the system's: the
	// daemon's own authority is HOME/tls/ca.pem.
	CAFile string
	// Patience is how long a daemon that is away is waited for; 0 is 10 seconds,
	// less than 0 is not at all. A socket that is not there at all is not waited for.
	Patience time.Duration
	// Transport carries requests in place of connections of the Client's own: to a
	// daemon in the same process, or through something that the caller has.
	Transport http.RoundTripper
}

// Client speaks to one daemon. Its methods may be called by any number of
// goroutines at once.
type Client struct {
	base     string // URL without a final slash
	key      string
	patience time.Duration
	http     *http.Client
	where    string // for messages
	closed   atomic.Bool
}

// New makes a Client. It does not connect yet.
func New(opt Options) (*Client, error) {
	const what = "reach the daemon"
	if opt.URL == "" {
		opt.URL = os.Getenv(EnvURL)
	}
	if opt.URL == "" {
		home, err := homePath(opt.Home)
		if err != nil {
			return nil, err
		}
		opt.URL = "unix://" + filepath.Join(home, SocketName)
	}
	u, err := url.Parse(opt.URL)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "write unix:///PATH, http://HOST:PORT or https://HOST:PORT", "%w", err)
	}
	c := &Client{patience: opt.Patience, where: opt.URL}
	if c.patience == 0 {
		c.patience = 10 * time.Second
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       time.Minute,
		DisableCompression:    true,
		ExpectContinueTimeout: 2 * time.Second, // for a proxy that does not hand the question on
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	switch u.Scheme {
	case "unix":
		path := u.Path
		if u.Host != "" || !filepath.IsAbs(path) {
			return nil, bailey.Errorf(bailey.CodeUsage, what, "write unix:///PATH", "%s has no absolute path", opt.URL)
		}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		c.base = "http://localhost"
	case "http", "https":
		if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, bailey.Errorf(bailey.CodeUsage, what, "write http://HOST:PORT or https://HOST:PORT", "%s is no address of a daemon", opt.URL)
		}
		if u.Scheme == "http" && !loopback(u.Hostname()) {
			return nil, bailey.Errorf(bailey.CodeUsage, what, "use https", "the key and all that is said would be readable on the way to %s", u.Host)
		}
		transport.DialContext = dialer.DialContext
		transport.Proxy = http.ProxyFromEnvironment
		c.base = strings.TrimSuffix(opt.URL, "/")
		if c.key = opt.Key; c.key == "" {
			c.key = os.Getenv(EnvKey)
		}
		if opt.CAFile != "" {
			pem, err := os.ReadFile(opt.CAFile)
			pool := x509.NewCertPool()
			if err == nil && !pool.AppendCertsFromPEM(pem) {
				return nil, bailey.Errorf(bailey.CodeUsage, what, "", "%s has no certificate", opt.CAFile)
			}
			if err != nil {
				return nil, bailey.Errorf(bailey.CodeUsage, what, "", "%w", err)
			}
			transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		}
	default:
		return nil, bailey.Errorf(bailey.CodeUsage, what, "write unix:///PATH, http://HOST:PORT or https://HOST:PORT", "%s has another scheme", opt.URL)
	}
	c.http = &http.Client{
		Transport: cmp.Or[http.RoundTripper](opt.Transport, transport),
		// A redirect would send the key to whoever is named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Close lets go of idle connections. Calls that are under way go on.
func (c *Client) Close() {
	c.closed.Store(true)
	c.http.CloseIdleConnections()
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// homePath finds the data folder as all of Bailey does.
func homePath(home string) (string, error) {
	const what = "find the data folder"
	if home == "" {
		home = os.Getenv(EnvHome)
	}
	switch {
	case filepath.IsAbs(home):
		return filepath.Clean(home), nil
	case home != "":
		return "", bailey.Errorf(bailey.CodeUsage, what, "give an absolute path", "%q is a relative path", home)
	case os.Geteuid() == 0:
		return "/var/lib/bailey", nil
	}
	if p := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(p) {
		return filepath.Join(p, "bailey"), nil
	}
	user, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(user) {
		return "", bailey.Errorf(bailey.CodeStorage, what, "set HOME or "+EnvHome, "HOME is not set to an absolute path")
	}
	return filepath.Join(user, ".local", "share", "bailey"), nil
}
