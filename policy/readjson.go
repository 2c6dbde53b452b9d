package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds how deep values may be nested; documents need six.
const maxDepth = 32

// readJSON gives the same tree as YAML does, with the lines.
func readJSON(text []byte) (*yaml.Node, error) {
	r := &jsonReader{text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	r.dec.UseNumber()
	n, err := r.value(0)
	if err == nil {
		if _, e := r.dec.Token(); !errors.Is(e, io.EOF) {
			err = errors.New("something follows the document")
		}
	}
	if err != nil {
		return nil, &Error{Line: r.line(), Why: "it is no JSON: " + err.Error()}
	}
	return n, nil
}

type jsonReader struct {
	text []byte
	dec  *json.Decoder
	seen int64 // offset up to which lines have been counted
	n    int
}

func (r *jsonReader) line() int {
	if to := r.dec.InputOffset(); to > r.seen && to <= int64(len(r.text)) {
		r.n += bytes.Count(r.text[r.seen:to], []byte("\n"))
		r.seen = to
	}
	return r.n + 1
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("values are nested deeper than %d", maxDepth)
	}
	t, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line()}
	switch t := t.(type) {
	case nil:
		n.Tag = "!!null"
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(t)
	case string:
		n.Tag, n.Value = "!!str", t
	case json.Number:
		n.Tag, n.Value = "!!float", t.String()
		if _, err := t.Int64(); err == nil {
			n.Tag = "!!int"
		}
	case json.Delim:
		n.Kind = yaml.MappingNode
		if t == '[' {
			n.Kind = yaml.SequenceNode
		}
		for r.dec.More() {
			item, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		if _, err := r.dec.Token(); err != nil {
			return nil, err
		}
	}
	return n, nil
}
