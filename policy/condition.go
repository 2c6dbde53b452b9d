package policy

import (
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
)

// The bounds of a condition. The cost is CEL's own count of steps; a hundred
// thousand are a few milliseconds.
const (
	maxCondition     = 4096
	maxConditionCost = 100_000
)

// condition is the CEL expression of a rule (https://cel.dev). It sees the
// request, and nothing else: no input or output, no clock.
type condition struct {
	text    string
	program cel.Program
	stage   Stage // where all that it looks at is known
}

// environment is made when the first condition is compiled, so that policies
// without one do not pay for it.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	lists := cel.MapType(cel.StringType, cel.ListType(cel.StringType))
	return cel.NewEnv(
		cel.Variable("req.host", cel.StringType),
		cel.Variable("req.port", cel.IntType),
		cel.Variable("req.scheme", cel.StringType),
		cel.Variable("req.method", cel.StringType),
		cel.Variable("req.path", cel.StringType),
		cel.Variable("req.query", lists),
		cel.Variable("req.headers", lists), // names in lower case
		cel.Variable("req.websocket", cel.BoolType),
		cel.Variable("req.body_size", cel.IntType), // -1 when not known
		cel.Variable("req.body", cel.BytesType),
	)
})

func compileCondition(text string) (*condition, error) {
	if len(text) > maxCondition {
		return nil, fmt.Errorf("the condition is longer than %d characters", maxCondition)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	tree, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("it is no condition: %s", strings.Join(strings.Fields(issues.Err().Error()), " "))
	}
	if !tree.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("the condition is %s and must be true or false", tree.OutputType())
	}
	program, err := env.Program(tree, cel.CostLimit(maxConditionCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, fmt.Errorf("it is no condition: %w", err)
	}
	c := &condition{text: text, program: program, stage: Head}
	for _, ref := range tree.NativeRep().ReferenceMap() {
		if ref.Name == "req.body" {
			c.stage = Body
		}
	}
	return c, nil
}

// holds evaluates. A condition that fails (a key that is not there, too much
// work) holds for a rule that denies, and does not for one that allows.
func (c *condition) holds(q *Request, denies bool) bool {
	if c.holdsFor(q, q.Path, denies) {
		return true
	}
	other := otherReading(q.Path)
	return denies && other != q.Path && c.holdsFor(q, other, denies)
}

func (c *condition) holdsFor(q *Request, path string, onError bool) bool {
	headers := make(map[string][]string, len(q.Header))
	for k, v := range q.Header {
		headers[strings.ToLower(k)] = append(headers[strings.ToLower(k)], v...)
	}
	query := q.Query
	if query == nil {
		query = map[string][]string{}
	}
	out, _, err := c.program.Eval(map[string]any{
		"req.host": q.To.Host().String(), "req.port": int64(q.To.Port()), "req.scheme": string(q.Scheme),
		"req.method": q.Method, "req.path": path, "req.query": query, "req.headers": headers,
		"req.websocket": q.WebSocket, "req.body_size": q.BodySize, "req.body": q.Body,
	})
	if err != nil {
		return onError
	}
	b, ok := out.Value().(bool)
	if !ok {
		return onError
	}
	return b
}
