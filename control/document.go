package control

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document is a YAML file being read. It collects what is wrong with it
// instead of stopping at the first fault.
type document struct {
	name    string
	anchors map[string]ast.Node
	faults  []fault
}

type fault struct {
	line, column int
	text         string
}

// value is one node of a document and the path by which messages name it,
// like services[0].servers[1].weight.
type value struct {
	doc  *document
	node ast.Node
	path string
}

// parseDocument reads the one YAML document that data must hold.
func parseDocument(name string, data []byte) (*document, value, error) {
	doc := &document{name: name, anchors: map[string]ast.Node{}}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			doc.fault(y.GetToken(), "", "%s", y.GetMessage())
			return nil, value{}, doc.err()
		}
		return nil, value{}, fmt.Errorf("%s: %w", name, err)
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		return nil, value{}, fmt.Errorf("%s:1:1: the file is empty: links and services must be in it", name)
	case len(bodies) > 1:
		doc.fault(value{doc: doc, node: bodies[1]}.token(), "", "a second document begins here: the configuration is one")
		return nil, value{}, doc.err()
	}
	ast.Walk(anchorWalk{doc}, bodies[0])
	return doc, value{doc: doc, node: bodies[0]}, nil
}

// anchorWalk remembers the nodes that have a name (&name).
type anchorWalk struct{ doc *document }

func (w anchorWalk) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		w.doc.anchors[a.Name.GetToken().Value] = a.Value
	}
	return w
}

func (d *document) fault(at *token.Token, path, format string, args ...any) {
	f := fault{line: 1, column: 1, text: fmt.Sprintf(format, args...)}
	if path != "" {
		f.text = path + ": " + f.text
	}
	if at != nil && at.Position != nil {
		f.line, f.column = at.Position.Line, at.Position.Column
	}
	d.faults = append(d.faults, f)
}

// err joins the faults in the order in which they stand in the file.
func (d *document) err() error {
	slices.SortStableFunc(d.faults, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	var errs []error
	for _, f := range d.faults {
		errs = append(errs, fmt.Errorf("%s:%d:%d: %s", d.name, f.line, f.column, f.text))
	}
	return errors.Join(errs...)
}

// wrong records a fault of v. The format goes on after v's path.
func (v value) wrong(format string, args ...any) {
	v.doc.fault(v.token(), v.path, format, args...)
}

// token returns the place messages point at: a mapping's first key, or the
// scalar itself.
func (v value) token() *token.Token {
	switch n := v.plain().(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	case nil:
		return nil
	}
	if v.node == nil {
		return nil
	}
	return v.node.GetToken()
}

// plain returns v's node without anchor, alias or tag around it.
func (v value) plain() ast.Node {
	n := v.node
	for range 8 {
		switch w := n.(type) {
		case *ast.AnchorNode:
			n = w.Value
		case *ast.AliasNode:
			n = v.doc.anchors[w.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

// missing reports whether v was not written, or without a value.
func (v value) missing() bool {
	n := v.plain()
	return n == nil || n.Type() == ast.NullType
}

// mapping returns the values of v's keys; each key must be one of known. A
// key that is not written has a value that is missing and stands where v does.
func (v value) mapping(known ...string) map[string]value {
	out := map[string]value{}
	for _, k := range known {
		out[k] = value{doc: v.doc, path: v.child(k)}
	}
	var pairs []*ast.MappingValueNode
	switch n := v.plain().(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		v.wrong("must be a mapping with the keys %s, not %s", strings.Join(known, ", "), v.kind())
		return out
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		key := p.Key.GetToken()
		name := key.Value
		switch {
		case !slices.Contains(known, name):
			v.doc.fault(key, v.child(name), "is not known here: the keys are %s", strings.Join(known, ", "))
		case seen[name]:
			v.doc.fault(key, v.child(name), "stands here a second time: write it once")
		default:
			seen[name] = true
			out[name] = value{doc: v.doc, node: p.Value, path: v.child(name)}
		}
	}
	return out
}

func (v value) child(key string) string {
	if v.path == "" {
		return key
	}
	return v.path + "." + key
}

// list returns v's items; none when v is missing.
func (v value) list() []value {
	if v.missing() {
		return nil
	}
	seq, ok := v.plain().(*ast.SequenceNode)
	if !ok {
		v.wrong("must be a list, not %s", v.kind())
		return nil
	}
	out := make([]value, len(seq.Values))
	for i, n := range seq.Values {
		out[i] = value{doc: v.doc, node: n, path: fmt.Sprintf("%s[%d]", v.path, i)}
	}
	return out
}

// text returns the scalar v as it is written.
func (v value) text() (string, bool) {
	switch n := v.plain().(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, true
	}
	v.wrong("must be a word, not %s", v.kind())
	return "", false
}

// integer returns the whole number v, which must be in [low, high].
func (v value) integer(low, high int64) (int64, bool) {
	n, ok := v.plain().(*ast.IntegerNode)
	if !ok {
		text := v.kind()
		if s, isText := v.plain().(*ast.StringNode); isText {
			text = fmt.Sprintf("%q", s.Value)
		}
		v.wrong("%s is not a whole number from %d to %d", text, low, high)
		return 0, false
	}
	var i int64
	switch x := n.Value.(type) {
	case int64:
		i = x
	case uint64:
		i = int64(min(x, 1<<63-1))
	}
	if i < low || i > high {
		v.wrong("%s is out of range: %d to %d", n.GetToken().Value, low, high)
		return 0, false
	}
	return i, true
}

// kind names what v is, for messages.
func (v value) kind() string {
	switch n := v.plain().(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", n.GetToken().Value)
	}
}
