package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDocument bounds a document, in bytes: thousands of rules fit.
const maxDocument = 4 << 20

// read fills a document from its text: JSON if it begins with a brace, YAML
// otherwise. Anchors, aliases, tags, a second document, fields that do not
// exist and fields that are there twice are errors.
func read(text []byte) (*document, error) {
	root, err := readTree(text)
	if err != nil {
		return nil, err
	}
	d := new(document)
	return d, fill(root, reflect.ValueOf(d).Elem(), "")
}

func readTree(text []byte) (*yaml.Node, error) {
	if len(text) > maxDocument {
		return nil, &Error{Why: fmt.Sprintf("the document is longer than %d bytes", maxDocument), Fix: "split the policy"}
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		return readJSON(text)
	}
	return readYAML(text)
}

func readYAML(text []byte) (root *yaml.Node, err error) {
	// The parser is not ours; what it cannot bear is an error and no crash.
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, &Error{Why: fmt.Sprintf("it is no YAML: %v", r)}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &Error{Why: "it is empty", Fix: "a policy begins with version: 1"}
	} else if err != nil {
		return nil, &Error{Why: "it is no YAML: " + strings.TrimPrefix(err.Error(), "yaml: "), Fix: "a policy begins with version: 1"}
	}
	// One that is malformed is not passed over: what denies might be in it.
	var next yaml.Node
	if err := dec.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, &Error{Line: next.Line, Why: "a second document begins", Fix: "keep one"}
	}
	if len(doc.Content) != 1 {
		return nil, &Error{Why: "it is empty", Fix: "a policy begins with version: 1"}
	}
	return doc.Content[0], nil
}

// fill copies node into v, whose type says what may be there.
func fill(n *yaml.Node, v reflect.Value, at string) error {
	if n.Anchor != "" || n.Kind == yaml.AliasNode || n.Style&yaml.TaggedStyle != 0 {
		return &Error{n.Line, at, "anchors, aliases and tags are not taken", "write the value out"}
	}
	null := n.Kind == yaml.ScalarNode && n.Tag == "!!null"
	switch v.Kind() {
	case reflect.Struct:
		if null {
			return nil
		}
		return fillStruct(n, v, at)
	case reflect.Map:
		if null {
			return nil
		}
		v.Set(reflect.MakeMap(v.Type()))
		return eachField(n, at, func(key, value *yaml.Node) error {
			elem := reflect.New(v.Type().Elem()).Elem()
			if err := fill(value, elem, join(at, key.Value)); err != nil {
				return err
			}
			v.SetMapIndex(reflect.ValueOf(key.Value), elem)
			return nil
		})
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, len(n.Content)))
		if null {
			return nil
		}
		if n.Kind != yaml.SequenceNode {
			return &Error{n.Line, at, "it is " + kindOf(n) + " and must be a list", "write [a, b], or one - a line"}
		}
		for i, item := range n.Content {
			elem := reflect.New(v.Type().Elem()).Elem()
			where := fmt.Sprintf("%s[%d]", at, i)
			if item.Kind == yaml.ScalarNode && item.Tag == "!!null" {
				return &Error{item.Line, where, "it is empty", "remove it"}
			}
			if err := fill(item, elem, where); err != nil {
				return err
			}
			v.Set(reflect.Append(v, elem))
		}
		return nil
	}
	if n.Kind != yaml.ScalarNode {
		return &Error{n.Line, at, "it is " + kindOf(n) + " and must be a single value", ""}
	}
	return fillScalar(n, v, at, null)
}

func fillScalar(n *yaml.Node, v reflect.Value, at string, null bool) error {
	if null {
		return &Error{n.Line, at, "it has no value", "give one, or remove the field"}
	}
	switch v.Kind() {
	case reflect.Bool:
		if n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
			return &Error{n.Line, at, fmt.Sprintf("%q is neither true nor false", n.Value), ""}
		}
		v.SetBool(n.Value == "true")
	case reflect.Int:
		i, err := strconv.Atoi(n.Value)
		if err != nil || n.Tag != "!!int" {
			return &Error{n.Line, at, fmt.Sprintf("%q is no whole number", n.Value), ""}
		}
		v.SetInt(int64(i))
	default:
		if n.Tag == "!!bool" || n.Tag == "!!timestamp" {
			return &Error{n.Line, at, n.Value + " is read as something else than text", "put it in quotes"}
		}
		if n.Value == "" && !strings.HasPrefix(at, "env.set.") {
			return &Error{n.Line, at, "it is empty", "give a value, or remove it"}
		}
		v.SetString(n.Value)
	}
	return nil
}

// notAvailable are fields that others have and that people look for here: why,
// and what to do.
var notAvailable = map[string][2]string{
	"egress_ip": {"not available: a sandbox has no source address of its own", "leave it out; requests leave from the host's address, and the host's routes choose which"},
}

func fillStruct(n *yaml.Node, v reflect.Value, at string) error {
	fields := map[string]int{}
	var names []string
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = i
			names = append(names, name)
		}
	}
	switch r := v.Addr().Interface().(type) {
	case *ruleDoc:
		r.line = n.Line
	case *mountDoc:
		r.line = n.Line
	case *secretDoc:
		r.line = n.Line
	case *expectDoc:
		r.line = n.Line
	}
	return eachField(n, at, func(key, value *yaml.Node) error {
		i, ok := fields[key.Value]
		if why, known := notAvailable[key.Value]; !ok && known {
			return &Error{key.Line, join(at, key.Value), why[0], why[1]}
		}
		if !ok {
			return &Error{key.Line, at, fmt.Sprintf("there is no field %q", key.Value), didYouMean(key.Value, names)}
		}
		return fill(value, v.Field(i), join(at, key.Value))
	})
}

// eachField goes through a mapping and refuses keys that are there twice.
func eachField(n *yaml.Node, at string, f func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return &Error{n.Line, at, "it is " + kindOf(n) + " and must be fields with values", "write name: value"}
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 || key.Tag == "!!merge" || key.Tag == "!!null" {
			return &Error{key.Line, at, "a field's name must be plain text", ""}
		}
		if line, twice := seen[key.Value]; twice {
			return &Error{key.Line, join(at, key.Value), fmt.Sprintf("it is there already, in line %d", line), "keep one"}
		}
		seen[key.Value] = key.Line
		if err := f(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a group of fields"
	}
	if n.Tag == "!!null" {
		return "empty"
	}
	return "a single value"
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// didYouMean names the field that was probably meant.
func didYouMean(got string, names []string) string {
	flat := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
	}
	for _, n := range names {
		if a, b := flat(got), flat(n); a == b || a+"s" == b || a == b+"s" {
			return "write " + n
		}
	}
	return "there are " + strings.Join(names, ", ")
}
