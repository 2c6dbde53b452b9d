package client

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// outward is what bailey port does about ports that are reachable from outside.
type outward struct {
	expose, public, tcp, close, list bool
	link                             time.Duration
}

func (o *outward) set(f *pflag.FlagSet) {
	f.BoolVar(&o.expose, "expose", false, "make the port reachable from outside, and print its address and token")
	f.BoolVar(&o.public, "public", false, "with --expose: for everybody, without a token")
	f.BoolVar(&o.tcp, "tcp", false, "with --expose --public: as a TCP port of the daemon's host")
	f.BoolVar(&o.close, "close", false, "end that the port is reachable from outside")
	f.DurationVar(&o.link, "link", 0, "make a link that lets into an exposed port for so long")
	f.BoolVar(&o.list, "ls", false, "list the sandbox's ports that are reachable from outside")
}

// asked says whether one of the flags was given, and refuses what does not fit.
func (o *outward) asked(args []string) (bool, error) {
	n := 0
	for _, on := range []bool{o.expose, o.close, o.list, o.link != 0} {
		if on {
			n++
		}
	}
	const what = "run bailey port"
	switch {
	case n > 1:
		return false, bailey.Errorf(bailey.CodeUsage, what, "choose one", "--expose, --close, --link and --ls exclude each other")
	case (o.public || o.tcp) && !o.expose:
		return false, bailey.Errorf(bailey.CodeUsage, what, "add --expose", "--public and --tcp say how a port is exposed")
	case n == 1 && (len(args) == 1) != o.list:
		return false, bailey.Errorf(bailey.CodeUsage, what, "write SANDBOX PORT, and SANDBOX alone with --ls", "it was given %d arguments", len(args))
	}
	return n == 1, nil
}

// outward does it.
func (inv *invocation) outward(o outward, args []string) error {
	c, err := inv.connect()
	if err != nil {
		return err
	}
	s := c.Sandbox(args[0])
	if o.list {
		list, err := s.Ports(inv.ctx)
		if err != nil {
			return err
		}
		return inv.print(api.PortList{Ports: list}, func(w io.Writer) {
			for _, p := range list {
				fmt.Fprintf(w, "%d\t%s\t%s\n", p.Port, access(p), terminal.Printable(p.URL))
			}
		})
	}
	port, err := portNumber(args[1])
	if err != nil {
		return err
	}
	switch {
	case o.close:
		return s.ClosePort(inv.ctx, port)
	case o.expose:
		p, err := s.Expose(inv.ctx, api.PortRequest{Port: port, Public: o.public, TCP: o.tcp})
		if err != nil {
			return err
		}
		return inv.print(p, func(w io.Writer) {
			fmt.Fprintf(w, "%s\n", terminal.Printable(p.URL))
			if p.Token != "" {
				fmt.Fprintf(w, "Bailey-Port-Token: %s\n", terminal.Printable(p.Token))
			}
		})
	}
	l, err := s.PortLink(inv.ctx, port, o.link)
	if err != nil {
		return err
	}
	return inv.print(l, func(w io.Writer) { fmt.Fprintf(w, "%s\n", terminal.Printable(l.URL)) })
}

func access(p api.Port) string {
	if p.Private {
		return "private"
	}
	return "public"
}

// portNumber reads the number of a port.
func portNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, bailey.Errorf(bailey.CodeUsage, "reach port "+terminal.Printable(s), "write PORT or LOCAL:PORT", "it is no port")
	}
	return int(n), nil
}
