package control

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document is a YAML file being read. It collects what is wrong with it
// instead of stopping at the first fault.
type document struct {
	name    string
	aliases map[*ast.AliasNode]ast.Node // what each *name stands for
	faults  []fault
}

type fault struct {
	line, column int
	text         string // path and detail

	path, value, detail string
}

// value is one node of a document and the path by which messages name it,
// like services[0].servers[1].weight.
type value struct {
	doc  *document
	node ast.Node
	path string
	// faulty says that a fault is recorded already that explains why nothing
	// can be read here: there is nothing to add to it.
	faulty bool
}

// MaxFile is the largest configuration file that is read, in bytes.
const MaxFile = 1 << 20

// Bounds of a file, far above what people write. The parser is slow on deep
// nesting.
const (
	maxBytes  = MaxFile
	maxDepth  = 32
	maxFaults = 50 // that are told
)

// parseDocument reads the one YAML document that data must hold.
func parseDocument(name string, data []byte) (*document, value, error) {
	doc := &document{name: name, aliases: map[*ast.AliasNode]ast.Node{}}
	refuse := func(at *token.Token, format string, args ...any) (*document, value, error) {
		doc.fault(at, "", format, args...)
		return nil, value{}, doc.err()
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark, as some editors write it
	if len(data) > maxBytes {
		return refuse(nil, "the file is larger than %d bytes: that is no configuration", maxBytes)
	}
	if !utf8.Valid(data) {
		return refuse(nil, "the file is not UTF-8: save it in that encoding")
	}
	var deep *token.Token
	var file *ast.File
	err := CallYAML(func() (err error) {
		tokens := lexer.Tokenize(string(data))
		if deep = tooDeep(tokens); deep == nil {
			file, err = parser.Parse(tokens, 0)
		}
		return err
	})
	if deep != nil {
		return refuse(deep, "is nested more than %d deep here: a configuration needs 4", maxDepth)
	}
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			return refuse(y.GetToken(), "%s", syntaxText(y.GetMessage()))
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
		return refuse(nil, "the file is empty: links and services must be in it")
	case len(bodies) > 1:
		return refuse(value{doc: doc, node: bodies[1]}.token(), "a second document begins here: the configuration is one")
	}
	ast.Walk(nameWalk{doc, map[string]ast.Node{}}, bodies[0])
	return doc, value{doc: doc, node: bodies[0]}, nil
}

// syntaxText adds to what the YAML parser says what would be right, where it is
// known.
func syntaxText(said string) string {
	var key string
	var line, column int
	if n, _ := fmt.Sscanf(said, "mapping key %q already defined at [%d:%d]", &key, &line, &column); n == 3 {
		return fmt.Sprintf("%s stands here a second time, first in line %d: write it once", key, line)
	}
	return said + ": see that indentation, quotes and brackets are right here"
}

// tooDeep returns the token at which something is nested too deep, or nil. It
// counts what can nest without a line of its own: flow collections, and the
// openings that stand together on one line.
func tooDeep(tokens token.Tokens) *token.Token {
	flow, line, openings := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, openings = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow = max(flow-1, 0)
		case token.SequenceEntryType, token.MappingKeyType, token.TagType:
			openings++
		}
		if flow > maxDepth || flow == 0 && openings > maxDepth {
			return t
		}
	}
	return nil
}

// nameWalk finds out what aliases (*name) stand for: the nearest node before
// them that has the name (&name). It records names and tags that lead nowhere.
type nameWalk struct {
	doc   *document
	named map[string]ast.Node
}

func (w nameWalk) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.AnchorNode:
		w.named[n.Name.GetToken().Value] = n.Value
	case *ast.AliasNode:
		name := n.Value.GetToken()
		if to, ok := w.named[name.Value]; ok {
			w.doc.aliases[n] = to
		} else {
			w.doc.fault(n.GetToken(), "", "*%s stands for nothing: no &%[1]s stands before it", name.Value)
		}
		return nil
	case *ast.TagNode:
		switch n.GetToken().Value {
		case tagString, "!!int", "!!map", "!!seq":
		default:
			w.doc.fault(n.GetToken(), "", "the tag %s has no meaning here: leave it out", n.GetToken().Value)
		}
	}
	return w
}

// tagString makes a text of what looks like a number.
const tagString = "!!str"

func (d *document) fault(at *token.Token, path, format string, args ...any) {
	f := fault{line: 1, column: 1, path: path, detail: fmt.Sprintf(format, args...)}
	f.text = f.detail
	if path != "" {
		f.text = path + ": " + f.detail
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
	for i, f := range d.faults {
		if i == maxFaults {
			errs = append(errs, fmt.Errorf("%s: and %d more", d.name, len(d.faults)-i))
			break
		}
		errs = append(errs, fmt.Errorf("%s:%d:%d: %s", d.name, f.line, f.column, f.text))
	}
	return errors.Join(errs...)
}

// wrong records a fault of v. The format goes on after v's path.
func (v value) wrong(format string, args ...any) {
	v.doc.fault(v.token(), v.path, format, args...)
	if s, ok := v.plain().(ast.ScalarNode); ok {
		v.doc.faults[len(v.doc.faults)-1].value = s.GetToken().Value
	}
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
	for range maxDepth {
		switch w := n.(type) {
		case *ast.AnchorNode:
			n = w.Value
		case *ast.TagNode:
			n = w.Value
		case *ast.AliasNode:
			n = v.doc.aliases[w]
		default:
			return n
		}
	}
	return nil
}

// isText reports whether v is tagged as a text, by "!!str".
func (v value) isText() bool {
	t, ok := v.node.(*ast.TagNode)
	return ok && t.GetToken().Value == tagString
}

// missing reports whether v was not written, or cannot be read.
func (v value) missing() bool {
	n := v.plain()
	return v.faulty || n == nil || n.Type() == ast.NullType
}

// needs reports whether the child of v's mapping is there. One that was not
// written is a fault of v.
func (v value) needs(child value, format string, args ...any) bool {
	if child.missing() && !child.faulty {
		v.wrong(format, args...)
	}
	return !child.missing()
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
		if !v.faulty {
			v.wrong("must be a mapping with the keys %s, not %s", strings.Join(known, ", "), v.kind())
		}
		for k, c := range out {
			c.faulty = true
			out[k] = c
		}
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
			c := value{doc: v.doc, node: p.Value, path: v.child(name)}
			switch c.plain().(type) {
			case nil: // an alias that stands for nothing
				c.faulty = true
			case *ast.NullNode:
				v.doc.fault(key, c.path, "has no value: write one, or leave the key out")
				c.faulty = true
			}
			out[name] = c
		}
	}
	return out
}

// keys returns the names of v's keys in their order, each once; none when v is
// no mapping.
func (v value) keys() []string {
	var pairs []*ast.MappingValueNode
	switch n := v.plain().(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	}
	var names []string
	for _, p := range pairs {
		if name := p.Key.GetToken().Value; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (v value) child(key string) string {
	if v.path == "" {
		return key
	}
	return v.path + "." + key
}

// list returns v's items; none when v is missing. It is false when v is no
// list.
func (v value) list() ([]value, bool) {
	if v.missing() {
		return nil, !v.faulty
	}
	seq, ok := v.plain().(*ast.SequenceNode)
	if !ok {
		v.wrong("must be a list, not %s", v.kind())
		return nil, false
	}
	out := make([]value, len(seq.Values))
	for i, n := range seq.Values {
		out[i] = value{doc: v.doc, node: n, path: fmt.Sprintf("%s[%d]", v.path, i)}
		out[i].faulty = out[i].plain() == nil // an alias that stands for nothing
	}
	return out, true
}

// isList reports whether v is a list.
func (v value) isList() bool {
	_, ok := v.plain().(*ast.SequenceNode)
	return ok
}

// isZero reports whether v is the number 0 as it must be written.
func (v value) isZero() bool {
	n, ok := v.plain().(*ast.IntegerNode)
	return ok && !v.isText() && n.GetToken().Value == "0"
}

// boolean reads true or false.
func (v value) boolean() (yes, ok bool) {
	n, ok := v.plain().(*ast.BoolNode)
	if !ok {
		if !v.faulty {
			v.wrong("%s is neither true nor false", v.kind())
		}
		return false, false
	}
	return n.Value, true
}

// text returns the scalar v as it is written.
func (v value) text() (string, bool) {
	switch n := v.plain().(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, true
	}
	if !v.faulty {
		v.wrong("must be a word, not %s", v.kind())
	}
	return "", false
}

// integer returns the whole number v, which must be in [low, high] and written
// in plain decimal digits: what else YAML has (0x50, 0b1, 8_0, 080) reads
// differently to people and from one version of YAML to the next.
func (v value) integer(low, high int64) (int64, bool) {
	if v.faulty {
		return 0, false
	}
	n, ok := v.plain().(*ast.IntegerNode)
	if !ok || v.isText() {
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
	if written := n.GetToken().Value; written != strconv.FormatInt(i, 10) && i != 1<<63-1 {
		v.wrong("%s is not written in plain decimal digits: a whole number from %d to %d", written, low, high)
		return 0, false
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
