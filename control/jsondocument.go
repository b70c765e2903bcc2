package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// parseJSON reads JSON into the tree that the configuration's decoders read, so
// that what the API takes and what the file may say are one. path is the place of
// the whole.
func parseJSON(data []byte, path string) (*document, value, error) {
	doc := &document{aliases: map[*ast.AliasNode]ast.Node{}}
	if !utf8.Valid(data) {
		return nil, value{}, notJSON(path, errors.New("it is not UTF-8"))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	node, err := jsonNode(d, 0)
	if err != nil {
		return nil, value{}, notJSON(path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, value{}, notJSON(path, errors.New("something follows the value: one at a time"))
	}
	return doc, value{doc: doc, node: node, path: path}, nil
}

func notJSON(path string, err error) *Problem {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends before its value does")
	}
	p := problem(http.StatusBadRequest, "no JSON: %v", err)
	p.Faults = []Fault{{Place: path, Detail: p.Detail}}
	return p
}

// jsonNode reads the next value.
func jsonNode(d *json.Decoder, depth int) (ast.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return jsonMapping(d, depth)
		}
		return jsonList(d, depth)
	case string:
		return ast.String(jsonToken(token.StringType, t)), nil
	case json.Number:
		if strings.ContainsAny(string(t), ".eE") {
			return ast.Float(jsonToken(token.FloatType, string(t))), nil
		}
		return ast.Integer(jsonToken(token.IntegerType, string(t))), nil
	case bool:
		return ast.Bool(jsonToken(token.BoolType, fmt.Sprint(t))), nil
	}
	return ast.Null(jsonToken(token.NullType, "null")), nil
}

func jsonMapping(d *json.Decoder, depth int) (ast.Node, error) {
	m := ast.Mapping(jsonToken(token.MappingStartType, "{"), true)
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		child, err := jsonNode(d, depth+1)
		if err != nil {
			return nil, err
		}
		k := jsonToken(token.StringType, key.(string)) // JSON has no other keys
		m.Values = append(m.Values, ast.MappingValue(k, ast.String(k), child))
	}
	_, err := d.Token()
	return m, err
}

func jsonList(d *json.Decoder, depth int) (ast.Node, error) {
	list := ast.Sequence(jsonToken(token.SequenceStartType, "["), true)
	for d.More() {
		child, err := jsonNode(d, depth+1)
		if err != nil {
			return nil, err
		}
		list.Values = append(list.Values, child)
	}
	_, err := d.Token()
	return list, err
}

func jsonToken(kind token.Type, text string) *token.Token {
	return &token.Token{Type: kind, Value: text, Position: &token.Position{Line: 1, Column: 1}}
}

// problem is the answer to a request with faults, those left out that known has, too;
// nil where none are left.
func (d *document) problem(known []fault) *Problem {
	before := map[string]bool{}
	for _, f := range known {
		before[f.text] = true
	}
	p := problem(http.StatusUnprocessableEntity, "")
	for i, f := range d.faults {
		if before[f.text] {
			continue
		}
		if len(p.Faults) == maxFaults {
			p.Faults = append(p.Faults, Fault{Detail: fmt.Sprintf("and %d more", len(d.faults)-i)})
			break
		}
		p.Faults = append(p.Faults, Fault{Place: f.path, Value: f.value, Detail: f.detail})
	}
	if len(p.Faults) == 0 {
		return nil
	}
	p.Detail = p.Faults[0].String()
	if n := len(p.Faults); n > 1 {
		p.Detail = fmt.Sprintf("%s (and %d more under faults)", p.Detail, n-1)
	}
	return p
}
