package mirrors

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Anthropic serves the part of Anthropic's messages API that a coding agent uses,
// streams included, to whoever has the key. Its model has one idea: where it may
// use the tool Bash, it runs the command; with the tool's result it says done.
// The form is that of platform.claude.com/docs/en/api/messages-streaming.
func Anthropic(key, command, done string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		if r.Header.Get("X-Api-Key") != key {
			rw.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(rw, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`)
			return
		}
		var q struct {
			Model    string
			Stream   bool
			Messages json.RawMessage
			Tools    []struct{ Name string }
		}
		switch err := json.NewDecoder(r.Body).Decode(&q); {
		case r.Method != http.MethodPost || err != nil:
			rw.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/v1/messages/count_tokens":
			fmt.Fprint(rw, `{"input_tokens":1}`)
		case r.URL.Path == "/v1/messages":
			block, stop := object{"type": "text", "text": done}, "end_turn"
			if !strings.Contains(string(q.Messages), `"tool_result"`) {
				for _, t := range q.Tools {
					if t.Name == "Bash" {
						block, stop = object{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": object{"command": command, "description": "work"}}, "tool_use"
					}
				}
			}
			answer(rw, q.Model, q.Stream, block, stop)
		default:
			rw.WriteHeader(http.StatusNotFound)
		}
	})
}

type object = map[string]any

// answer sends a message of one block, whole or as events.
func answer(rw http.ResponseWriter, model string, stream bool, block object, stop string) {
	message := object{
		"type": "message", "id": "msg_1", "role": "assistant", "model": model, "content": []any{block},
		"stop_reason": stop, "stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1},
	}
	if !stream {
		json.NewEncoder(rw).Encode(message)
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	event := func(kind string, fields object) {
		fields["type"] = kind
		text, err := json.Marshal(fields)
		if err != nil {
			panic(err) // of our own maps
		}
		fmt.Fprintf(rw, "event: %s\ndata: %s\n\n", kind, text)
		http.NewResponseController(rw).Flush()
	}
	message["content"], message["stop_reason"] = []any{}, nil
	event("message_start", object{"message": message})
	start, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": block["text"]}
	if block["type"] == "tool_use" {
		input, err := json.Marshal(block["input"])
		if err != nil {
			panic(err)
		}
		start = object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": string(input)}
	}
	event("content_block_start", object{"index": 0, "content_block": start})
	event("content_block_delta", object{"index": 0, "delta": delta})
	event("content_block_stop", object{"index": 0})
	event("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 1}})
	event("message_stop", object{})
}
