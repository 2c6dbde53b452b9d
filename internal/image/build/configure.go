package build

import (
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/bailey-sandbox/bailey"
)

// configure does the instructions that change no file.
func (s *stage) configure(c instructions.Command) error {
	cf := &s.config.Config
	switch c := c.(type) {
	case *instructions.ArgCommand:
		s.declare(c)
	case *instructions.EnvCommand:
		for _, e := range c.Env {
			cf.Env = setEnv(cf.Env, e.Key, e.Value)
		}
	case *instructions.LabelCommand:
		labels := maps.Clone(cf.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		for _, l := range c.Labels {
			labels[l.Key] = l.Value
		}
		cf.Labels = labels
	case *instructions.MaintainerCommand:
		s.config.Author = c.Maintainer
	case *instructions.UserCommand:
		if _, err := resolveUser(s.view(), c.User); err != nil {
			return err
		}
		cf.User = c.User
	case *instructions.CmdCommand:
		cf.Cmd, s.hasCmd = s.command(c.ShellDependantCmdLine), true
	case *instructions.EntrypointCommand:
		cf.Entrypoint = s.command(c.ShellDependantCmdLine)
		if !s.hasCmd { // the base's arguments are another program's
			cf.Cmd = nil
		}
	case *instructions.ShellCommand:
		cf.Shell = c.Shell
	case *instructions.StopSignalCommand:
		cf.StopSignal = c.Signal
	case *instructions.ExposeCommand:
		return s.expose(c)
	case *instructions.VolumeCommand:
		volumes := maps.Clone(cf.Volumes)
		if volumes == nil {
			volumes = map[string]struct{}{}
		}
		for _, v := range c.Volumes {
			if v == "" {
				return fmt.Errorf("a volume has an empty path")
			}
			volumes[s.inside(v)] = struct{}{}
		}
		cf.Volumes = volumes
	case *instructions.HealthCheckCommand:
		h := c.Health
		cf.Healthcheck = &v1.HealthConfig{Test: h.Test, Interval: h.Interval, Timeout: h.Timeout, StartPeriod: h.StartPeriod, Retries: h.Retries}
	case *instructions.OnbuildCommand:
		cf.OnBuild = append(append([]string(nil), cf.OnBuild...), c.Expression)
	default:
		return bailey.Errorf(bailey.CodeNotAvailable, "do "+strings.ToUpper(c.Name()), "", "Bailey does not know this instruction")
	}
	return nil
}

// declare makes build arguments visible to what follows.
func (s *stage) declare(c *instructions.ArgCommand) {
	for _, a := range c.Args {
		s.b.used[a.Key] = true
		if v, ok := s.b.Spec.Args[a.Key]; ok {
			s.args = setEnv(s.args, a.Key, v)
		} else if a.Value != nil {
			s.args = setEnv(s.args, a.Key, *a.Value)
		} else if v, ok := getEnv(s.b.global, a.Key); ok {
			s.args = setEnv(s.args, a.Key, v)
		}
	}
}

// command is what is run, behind the shell where it is written as text.
func (s *stage) command(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return c.CmdLine
	}
	return append(s.shell(), strings.Join(c.CmdLine, " "))
}

func (s *stage) shell() []string {
	if len(s.config.Config.Shell) > 0 {
		return append([]string(nil), s.config.Config.Shell...)
	}
	return []string{"/bin/sh", "-c"}
}

// expose notes ports: PORT[-PORT][/PROTOCOL].
func (s *stage) expose(c *instructions.ExposeCommand) error {
	ports := maps.Clone(s.config.Config.ExposedPorts)
	if ports == nil {
		ports = map[string]struct{}{}
	}
	for _, p := range c.Ports {
		words, err := s.b.file.words(s.env(), p)
		if err != nil {
			return err
		}
		for _, w := range words {
			span, protocol, ok := strings.Cut(strings.ToLower(w), "/")
			if !ok {
				protocol = "tcp"
			}
			if _, _, err := net.SplitHostPort(span); err == nil || protocol != "tcp" && protocol != "udp" && protocol != "sctp" {
				return fmt.Errorf("%q is no PORT or PORT/tcp", w)
			}
			first, last, ok := strings.Cut(span, "-")
			if !ok {
				last = first
			}
			from, err1 := strconv.ParseUint(first, 10, 16)
			to, err2 := strconv.ParseUint(last, 10, 16)
			if err1 != nil || err2 != nil || from == 0 || to < from {
				return fmt.Errorf("%q is no port from 1 to 65535", w)
			}
			for n := from; n <= to; n++ {
				ports[fmt.Sprintf("%d/%s", n, protocol)] = struct{}{}
			}
		}
	}
	s.config.Config.ExposedPorts = ports
	return nil
}
