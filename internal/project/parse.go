package project

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/hostview"
)

// Bounds of a project's file. What is larger is an error, not cut.
const (
	MaxSize   = 64 << 10 // bytes of the whole
	maxText   = 4096     // bytes of one text
	maxMounts = 32
	maxEnv    = 256
	maxNet    = 256 // hosts, profiles and secrets, of each
	// fileHome is put before the name of a home that a file chooses, so that it
	// never reaches one that a person has made by --home.
	fileHome    = "project."
	maxHomeName = 64 - len(fileHome)
)

// field reads the value of one key into the settings.
type field func(p *parser, key string, value *yaml.Node, s *Settings)

// fields are the keys that a file may have. They are named as the flags are.
var fields = map[string]field{
	"version": func(p *parser, key string, v *yaml.Node, _ *Settings) {
		if n := p.integer(key, v); n != 1 && p.err == nil {
			p.fail(v, "version %d is not known; this Bailey reads version 1", n)
		}
	},
	"isolation":     func(p *parser, key string, v *yaml.Node, s *Settings) { s.Isolation = p.isolation(key, v) },
	"min-isolation": func(p *parser, key string, v *yaml.Node, s *Settings) { s.MinIsolation = p.isolation(key, v) },
	"image":         func(p *parser, key string, v *yaml.Node, s *Settings) { s.Image = p.beneath(key, v) },
	"template":      func(p *parser, key string, v *yaml.Node, s *Settings) { s.Template = p.name(key, v, 64) },
	"workdir":       func(p *parser, key string, v *yaml.Node, s *Settings) { s.Workdir = p.beneath(key, v) },
	"home":          func(p *parser, key string, v *yaml.Node, s *Settings) { s.Home = p.name(key, v, maxHomeName) },
	"copy":          func(p *parser, key string, v *yaml.Node, s *Settings) { s.Copy = p.boolean(key, v) },
	"cpus":          func(p *parser, key string, v *yaml.Node, s *Settings) { s.Limits.CPUs = p.number(key, v) },
	"memory":        func(p *parser, key string, v *yaml.Node, s *Settings) { s.Limits.Memory = p.size(key, v) },
	"disk":          func(p *parser, key string, v *yaml.Node, s *Settings) { s.Limits.Disk = p.size(key, v) },
	"io":            func(p *parser, key string, v *yaml.Node, s *Settings) { s.Limits.IO = p.size(key, v) },
	"output":        func(p *parser, key string, v *yaml.Node, s *Settings) { s.Limits.Output = p.size(key, v) },
	"pids":          func(p *parser, key string, v *yaml.Node, s *Settings) { s.Limits.Pids = p.count(key, v) },
	"timeout":       func(p *parser, key string, v *yaml.Node, s *Settings) { s.Limits.Timeout = p.duration(key, v) },
	"mounts":        func(p *parser, key string, v *yaml.Node, s *Settings) { s.Mounts = p.mounts(key, v) },
	"env":           func(p *parser, key string, v *yaml.Node, s *Settings) { s.Env = p.env(key, v) },
	"allow":         func(p *parser, key string, v *yaml.Node, s *Settings) { s.Allow = p.texts(key, v) },
	"profiles":      func(p *parser, key string, v *yaml.Node, s *Settings) { s.Profiles = p.texts(key, v) },
	"secrets":       func(p *parser, key string, v *yaml.Node, s *Settings) { s.Secrets = p.secrets(key, v) },
	"policy":        func(p *parser, key string, v *yaml.Node, s *Settings) { s.Policy = p.document(key, v) },
}

// personal are flags that only a person may give, and why.
var personal = map[string]string{
	"writable":         "it lets the sandbox write to the host",
	"apply":            "it lets the sandbox's changes reach the host unseen",
	"discard":          "it throws away what a person may want to see",
	"i-understand":     "it is a person's word",
	"nested-sandboxes": "it widens what of the kernel the sandbox reaches",
	"workspace":        "it is where the file lies",
	"user":             "it says whose rights the sandbox has",
}

// Names gives the settings that a file may have, sorted.
func Names() []string { return slices.Sorted(maps.Keys(fields)) }

// parser reads one file. The first error stays.
type parser struct {
	workspace string
	err       error
}

func (p *parser) fail(n *yaml.Node, format string, args ...any) {
	if p.err == nil {
		p.err = malformed("line %d: %s", n.Line, fmt.Sprintf(format, args...))
	}
}

func malformed(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeUsage, "read "+FileName, "correct it, or remove it", format, args...)
}

// Parse reads a project's file. workspace is the real path of the folder it
// lies in; paths in the file are relative to it. Every error has the code
// usage and, where there is one, a line number.
func Parse(data []byte, workspace string) (s Settings, err error) {
	if len(data) > MaxSize {
		return Settings{}, malformed("it has more than %d bytes", MaxSize)
	}
	if !utf8.Valid(data) {
		return Settings{}, malformed("it is not UTF-8")
	}
	if !path.IsAbs(workspace) {
		return Settings{}, malformed("the workspace %q is not an absolute path", workspace)
	}
	root, err := decode(data)
	if err != nil || root == nil {
		return Settings{}, err
	}
	p := &parser{workspace: path.Clean(workspace)}
	p.checkTree(root, 0)
	p.mapping(root, &s)
	if p.err != nil {
		return Settings{}, p.err
	}
	return s, nil
}

// decode gives the one document's tree, nil if the file has none.
func decode(data []byte) (root *yaml.Node, err error) {
	defer func() {
		// The library answers bad input with errors; should it fall over, the
		// input is bad all the same.
		if r := recover(); r != nil {
			root, err = nil, malformed("the YAML cannot be read: %v", r)
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, malformed("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(&more); err == nil {
		return nil, malformed("line %d: a second document begins", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, malformed("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, malformed("it is not one YAML document")
	}
	if c := doc.Content[0]; c.Kind == yaml.ScalarNode && c.ShortTag() == "!!null" && c.Anchor == "" && c.Style&yaml.TaggedStyle == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

// checkTree refuses what a plain file does not need and a bomb does.
func (p *parser) checkTree(n *yaml.Node, depth int) {
	switch {
	case p.err != nil:
		return
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		p.fail(n, "anchors and aliases are not allowed")
	case n.Style&yaml.TaggedStyle != 0:
		p.fail(n, "tags such as %s are not allowed", strconv.Quote(n.Tag))
	case depth > 2:
		p.fail(n, "lists and mappings are nested too deep")
	}
	for _, c := range n.Content {
		p.checkTree(c, depth+1)
	}
}

func (p *parser) mapping(root *yaml.Node, s *Settings) {
	if p.err != nil {
		return
	}
	if root.Kind != yaml.MappingNode {
		p.fail(root, "a mapping is expected, as in memory: 2G")
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(root.Content) && p.err == nil; i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" {
			p.fail(k, "a key is not a name")
			return
		}
		if line, twice := seen[k.Value]; twice {
			p.fail(k, "%s is already on line %d", strconv.Quote(k.Value), line)
			return
		}
		seen[k.Value] = k.Line
		read, known := fields[k.Value]
		switch why, ours := personal[k.Value]; {
		case known:
			read(p, k.Value, v, s)
		case ours:
			p.fail(k, "%s cannot be set by a project: %s", k.Value, why)
		default:
			p.fail(k, "there is no setting %s; there are %s", strconv.Quote(short(k.Value)), strings.Join(Names(), ", "))
		}
	}
}

func short(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// scalar gives the text of a value with one of the tags.
func (p *parser) scalar(key string, v *yaml.Node, what string, tags ...string) (string, bool) {
	if v.Kind == yaml.ScalarNode {
		for _, tag := range tags {
			if v.ShortTag() == tag {
				if len(v.Value) > maxText {
					p.fail(v, "%s is longer than %d bytes", key, maxText)
					return "", false
				}
				return v.Value, true
			}
		}
	}
	p.fail(v, "%s needs %s", key, what)
	return "", false
}

func (p *parser) text(key string, v *yaml.Node) string {
	s, ok := p.scalar(key, v, "a text", "!!str")
	if ok && (s == "" || strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0) {
		p.fail(v, "%s is empty or holds control characters", key)
		return ""
	}
	return s
}

// name gives a text that can be a file's name and starts no flag.
func (p *parser) name(key string, v *yaml.Node, longest int) string {
	s := p.text(key, v)
	ok := len(s) <= longest
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || i > 0 && (c == '.' || c == '_' || c == '-'))
	}
	if !ok {
		p.fail(v, "%s needs a name of up to %d letters, digits, dots, dashes and underscores", key, longest)
		return ""
	}
	return s
}

func (p *parser) boolean(key string, v *yaml.Node) bool {
	s, _ := p.scalar(key, v, "true or false", "!!bool")
	return strings.EqualFold(s, "true")
}

func (p *parser) integer(key string, v *yaml.Node) int64 {
	s, ok := p.scalar(key, v, "a whole number", "!!int")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.fail(v, "%s needs a whole number in decimal digits", key)
	}
	return n
}

func (p *parser) count(key string, v *yaml.Node) int64 {
	n := p.integer(key, v)
	if n <= 0 {
		p.fail(v, "%s needs a number above zero", key)
		return 0
	}
	return n
}

func (p *parser) number(key string, v *yaml.Node) float64 {
	s, ok := p.scalar(key, v, "a number", "!!int", "!!float")
	if !ok {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f > 0) || f > 1e6 { // this is false for NaN too
		p.fail(v, "%s needs a number above zero, as in 1.5", key)
		return 0
	}
	return f
}

func (p *parser) isolation(key string, v *yaml.Node) bailey.Isolation {
	s, ok := p.scalar(key, v, "a level, as in container", "!!str")
	if !ok {
		return 0
	}
	l, err := bailey.ParseIsolation(s)
	if err != nil {
		p.fail(v, "%s: there is no level %s", key, strconv.Quote(short(s)))
	}
	return l
}

// size reads a number of bytes: 4096, 512M, 1.5GiB. K, M, G and T are powers
// of 1024.
func (p *parser) size(key string, v *yaml.Node) int64 {
	s, ok := p.scalar(key, v, "a size, as in 512M", "!!str", "!!int")
	if !ok {
		return 0
	}
	t := strings.TrimSuffix(strings.TrimSuffix(s, "B"), "i")
	unit := 1.0
	if n := len(t); n > 0 {
		if i := strings.IndexByte("KMGT", t[n-1]); i >= 0 {
			unit, t = float64(int64(1)<<(10*(i+1))), t[:n-1]
		}
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || !(f*unit >= 1) || f*unit >= 1<<60 || strings.ContainsAny(t, "xXpP_eE+-") {
		p.fail(v, "%s needs a size above zero, as in 512M", key)
		return 0
	}
	return int64(f * unit)
}

func (p *parser) duration(key string, v *yaml.Node) time.Duration {
	s, ok := p.scalar(key, v, "a time, as in 10m", "!!str")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		p.fail(v, "%s needs a time above zero, as in 90s or 1h30m", key)
		return 0
	}
	return d
}

// beneath reads a path in the workspace and makes it absolute. It judges the
// name only; see [Beneath] for what lies there.
func (p *parser) beneath(key string, v *yaml.Node) string {
	s := p.text(key, v)
	if p.err != nil {
		return ""
	}
	full, ok := join(p.workspace, s)
	if !ok {
		p.fail(v, "%s: %s is not in the workspace; write a path relative to it", key, strconv.Quote(short(s)))
		return ""
	}
	return full
}

// join puts the relative path rel below dir, if it stays there.
func join(dir, rel string) (string, bool) {
	full := path.Join(dir, rel)
	if rel == "" || path.IsAbs(rel) || strings.HasPrefix(rel, "~") || !within(full, dir) {
		return "", false
	}
	for _, part := range strings.Split(rel, "/") {
		if part == ".." { // a link before it would lead elsewhere than the name says
			return "", false
		}
	}
	return full, true
}

func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func (p *parser) list(key string, v *yaml.Node, most int) []*yaml.Node {
	if v.Kind != yaml.SequenceNode {
		p.fail(v, "%s needs a list", key)
		return nil
	}
	if len(v.Content) > most {
		p.fail(v, "%s has more than %d entries", key, most)
		return nil
	}
	return v.Content
}

func (p *parser) mounts(key string, v *yaml.Node) (mounts []hostview.Mount) {
	for _, n := range p.list(key, v, maxMounts) {
		s := p.text(key, n)
		if p.err != nil {
			return nil
		}
		m, err := hostview.ParseMount(s, p.workspace, "")
		source, _, _ := strings.Cut(s, ":")
		switch _, inside := join(p.workspace, source); {
		case err != nil:
			p.fail(n, "%s: %s is not SRC:DST", key, strconv.Quote(short(s)))
		case strings.ContainsRune(s, '\\'):
			p.fail(n, "%s: names with a colon or a backslash cannot be mounted by a project", key)
		case !inside || !within(m.Source, p.workspace):
			p.fail(n, "%s: %s is not in the workspace", key, strconv.Quote(short(source)))
		case m.Writable:
			p.fail(n, "%s: a project's mounts are read-only", key)
		case m.Target == m.Source:
			p.fail(n, "%s: %s needs a target, as in %s:/data", key, strconv.Quote(short(s)), short(source))
		default:
			mounts = append(mounts, m)
		}
	}
	return mounts
}

func (p *parser) env(key string, v *yaml.Node) (env []string) {
	seen := make(map[string]bool)
	for _, n := range p.list(key, v, maxEnv) {
		s, ok := p.scalar(key, n, "NAME or NAME=VALUE", "!!str")
		if !ok {
			return nil
		}
		name, value, _ := strings.Cut(s, "=")
		switch {
		case !envName(name) || hostview.CheckEnvName(name) != nil:
			p.fail(n, "%s: %s is not the name of a variable", key, strconv.Quote(short(name)))
		case strings.ContainsRune(value, 0):
			p.fail(n, "%s: the value of %s holds a NUL character", key, name)
		case seen[name]:
			p.fail(n, "%s: %s is there twice", key, name)
		}
		seen[name] = true
		env = append(env, s)
	}
	return env
}

// texts reads a list of texts, of which none is there twice. What they mean is
// the gate's to say.
func (p *parser) texts(key string, v *yaml.Node) (list []string) {
	for _, n := range p.list(key, v, maxNet) {
		s := p.text(key, n)
		if slices.Contains(list, s) {
			p.fail(n, "%s: %s is there twice", key, strconv.Quote(short(s)))
		}
		list = append(list, s)
	}
	return list
}

func (p *parser) secrets(key string, v *yaml.Node) []string {
	list := p.texts(key, v)
	for i, s := range list {
		if name, host, ok := strings.Cut(s, "@"); p.err == nil && (!ok || name == "" || host == "") {
			p.fail(v.Content[i], "%s: %s is not NAME@HOST", key, strconv.Quote(short(s)))
		}
	}
	return list
}

// document reads the path of a policy, which [Load] opens.
func (p *parser) document(key string, v *yaml.Node) *File {
	full := p.beneath(key, v)
	if p.err == nil && full == p.workspace {
		p.fail(v, "%s needs the path of a file", key)
	}
	return &File{Path: full}
}

// envName says whether a name is made of letters, digits and underscores.
func envName(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
