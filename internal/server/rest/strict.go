package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bailey-sandbox/bailey"
)

// format is JSON as it is read and written here.
var format = huma.Format{Marshal: marshal, Unmarshal: unmarshal}

func marshal(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// unmarshal reads JSON in which no field comes twice: of two readers one could
// take the first and the other the last.
func unmarshal(data []byte, v any) error {
	if _, generic := v.(*any); generic { // the first of the two readings, which validates
		if err := onlyOnce(json.NewDecoder(bytes.NewReader(data)), ""); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, v)
}

// onlyOnce reads one value and looks for fields that come twice.
func onlyOnce(d *json.Decoder, place string) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for i := 0; d.More(); i++ {
		at := fmt.Sprintf("%s[%d]", place, i)
		if open == '{' {
			k, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := k.(string) // JSON's grammar
			at = place + "." + name
			if seen[name] {
				return fmt.Errorf("the field %s comes twice", at[1:])
			}
			seen[name] = true
		}
		if err := onlyOnce(d, at); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// strictly reads JSON that huma has not validated: unknown fields and fields that
// come twice are errors. what completes the sentence "cannot …".
func strictly(data []byte, v any, what string) error {
	err := onlyOnce(json.NewDecoder(bytes.NewReader(data)), "")
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err = d.Decode(v); err == nil && d.More() {
			err = errors.New("something follows the value")
		}
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeUsage, what, "see /openapi.json for what can be said", "%w", err)
	}
	return nil
}
