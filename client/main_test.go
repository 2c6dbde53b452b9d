package client_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/server"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/server/standin"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// daemon is a server over a stand-in engine, in a data folder of its own. It can be
// stopped and started again, as a daemon is under its keeper.
type daemon struct {
	engine *standin.Engine
	home   string
	db     *state.DB
	keys   *access.Keys
	config server.Config
	tcp    string // where it listens

	stop func()
}

func newDaemon(home string, config server.Config) (*daemon, error) {
	db, err := state.Open(context.Background(), home)
	if err != nil {
		return nil, err
	}
	return &daemon{engine: standin.New(), home: home, db: db, keys: access.NewKeys(db, access.KeyOptions{}), config: config}, nil
}

// start gives once it listens.
func (d *daemon) start() error {
	ready := make(chan []string, 1)
	s, err := server.New(server.Options{
		Home: d.home, Engine: d.engine, DB: d.db, Keys: d.keys, Config: d.config,
		Stays: func() bool { return true }, Ready: func(a ...string) { ready <- a },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var once sync.Once
	d.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				panic(err)
			}
		})
	}
	select {
	case a := <-ready:
		if len(a) > 1 {
			d.tcp = a[1]
		}
		return nil
	case err := <-ended:
		cancel()
		return err
	}
}

// serve gives a daemon that runs and a client of its socket.
func serve(t *testing.T, config server.Config) (*daemon, *client.Client) {
	t.Helper()
	d, err := newDaemon(t.TempDir(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.db.Close() })
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.stop() })
	c, err := client.New(client.Options{Home: d.home, URL: "unix://" + d.home + "/bailey.sock"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return d, c
}

func (d *daemon) restart(t *testing.T) {
	t.Helper()
	d.stop()
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
}

// until waits for something that others do.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to: " + what)
		}
	}
}

func newSandbox(t *testing.T, c *client.Client) *client.Sandbox {
	t.Helper()
	s, err := c.Create(t.Context(), api.SandboxSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMain has a daemon for the examples.
func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "bailey-client-")
	if err == nil {
		os.Unsetenv(client.EnvURL)
		os.Unsetenv(client.EnvKey)
		err = os.Setenv(client.EnvHome, home)
	}
	var d *daemon
	if err == nil {
		if d, err = newDaemon(home, server.Config{}); err == nil {
			err = d.start()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	d.stop()
	d.db.Close()
	os.RemoveAll(home)
	os.Exit(status)
}
