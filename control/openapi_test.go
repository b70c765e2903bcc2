package control_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// TestTheOpenAPIDocumentDescribesTheOperations: it is what their table, the types
// and the comments on them make.
func TestTheOpenAPIDocumentDescribesTheOperations(t *testing.T) {
	want := newDescriber(t).document()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(want); err != nil {
		t.Fatal(err)
	}
	if *update {
		for _, path := range []string{"openapi.json", "../docs/openapi.json"} {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	kept, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(control.OpenAPI(), b.Bytes()) || !bytes.Equal(kept, b.Bytes()) {
		t.Error("openapi.json, or the one under docs, is not what the operations and their types make: go test ./control -run OpenAPI -update")
	}
}

// object is a JSON object.
type object = map[string]any

// describer makes schemas of Go types.
type describer struct {
	t        *testing.T
	comments map[string]string // of types, and of fields as type.field
	schemas  object
	config   object // the schema of a service in configuration files
}

func newDescriber(t *testing.T) *describer {
	d := &describer{t: t, comments: map[string]string{}, schemas: object{}}
	for _, pattern := range []string{"*.go", "../lvs/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if !strings.HasSuffix(path, "_test.go") {
				d.readComments(path)
			}
		}
	}
	var file struct {
		Properties struct{ Services struct{ Items object } }
	}
	if err := json.Unmarshal(control.Schema(nil), &file); err != nil {
		t.Fatal(err)
	}
	d.config = file.Properties.Services.Items
	return d
}

func (d *describer) readComments(path string) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			s, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			d.comments[s.Name.Name] = words(g.Doc.Text())
			if fields, ok := s.Type.(*ast.StructType); ok {
				for _, field := range fields.Fields.List {
					for _, name := range field.Names {
						d.comments[s.Name.Name+"."+name.Name] = words(field.Doc.Text() + " " + field.Comment.Text())
					}
				}
			}
		}
	}
}

func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func (d *describer) document() object {
	paths := object{}
	for _, o := range control.Operations() {
		path, _ := paths[o.Path].(object)
		if path == nil {
			path = object{}
			paths[o.Path] = path
		}
		path[strings.ToLower(o.Method)] = d.operation(&o)
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "pktdirector", "version": fmt.Sprint(control.APIVersion),
			"description": "Shows and changes what a running director balances. The API listens on a unix socket, for its owner, and on TCP where the configuration asks for it. " +
				"Each change says what shall be, so that made twice it changes nothing the second time; each request is one transaction. " +
				"Members may be added to answers without another version: ignore those you do not know. Requests must have no others than these.",
		},
		"servers":  []any{object{"url": "http://director", "description": "whatever the host: the connection goes to the unix socket"}},
		"security": []any{object{}, object{"token": []any{}}, object{"certificate": []any{}}},
		"paths":    paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{
				"token":       object{"type": "http", "scheme": "bearer", "description": "over TCP: what stands in the director's token_file"},
				"certificate": object{"type": "mutualTLS", "description": "over TCP: one that the director's client_ca vouches for"},
			},
		},
	}
}

func (d *describer) operation(o *control.Operation) object {
	id := strings.ToLower(o.Method)
	var parameters []any
	for _, segment := range strings.Split(strings.TrimPrefix(o.Path, "/v1"), "/") {
		name := strings.Trim(segment, "{}")
		if name != segment {
			parameters = append(parameters, object{"name": name, "in": "path", "required": true, "schema": object{"type": "string"},
				"description": map[string]string{"service": "tcp-192.0.2.10-80, udp-2001:db8::10-53, fwm-1, fwm-1-ipv6", "server": "10.2.0.1-8080, 2001:db8::1-8080"}[name]})
			name = "by-" + name
		}
		for _, part := range regexp.MustCompile(`[a-z]+`).FindAllString(name, -1) {
			id += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	for _, q := range o.Query {
		parameters = append(parameters, object{"name": q.Name, "in": "query", "description": q.Summary, "schema": object{"type": "string"}})
	}
	answer := object{"description": "done"}
	status := "204"
	if o.Response != nil {
		status, answer = "200", object{"description": "the answer", "content": object{o.Media: object{"schema": d.schema(o.Response, false)}}}
	}
	switch o.Media {
	case "application/x-ndjson":
		answer["description"] = "JSON values, one a line"
	case "text/event-stream":
		answer["description"] = "server-sent events without end; each one's data is the JSON of this schema"
	}
	op := object{
		"operationId": id, "summary": o.Summary, "x-changes": o.Changes,
		"responses": object{status: answer, "default": object{"description": "refused", "content": object{"application/problem+json": object{"schema": d.schema(reflect.TypeFor[control.Problem](), false)}}}},
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if o.Request != nil {
		body := object{"schema": d.schema(o.Request, false)}
		content := object{"application/json": body}
		if o.Method == "PATCH" {
			body = object{"schema": d.patch(o.Request)}
			content = object{"application/merge-patch+json": body, "application/json": body}
		}
		op["requestBody"] = object{"required": true, "content": content}
	}
	return op
}

// patch is the schema of a merge patch: any members, null for the default.
func (d *describer) patch(t reflect.Type) object {
	d.schema(t, false)
	members := object{}
	for name, s := range d.schemas[t.Name()].(object)["properties"].(object) {
		members[name] = object{"anyOf": []any{s, object{"type": "null"}}}
	}
	d.schemas[t.Name()+"Patch"] = object{"type": "object", "additionalProperties": false, "properties": members,
		"description": "What changes of a " + t.Name() + " (RFC 7396): members left out stay as they are, null is the default."}
	return ref(t.Name() + "Patch")
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// schema describes what encoding/json makes of a type; nullable: a pointer that is
// written even when it is nil.
func (d *describer) schema(t reflect.Type, nullable bool) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := d.schema(t.Elem(), false)
		if nullable {
			return object{"anyOf": []any{s, object{"type": "null"}}}
		}
		return s
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": d.schema(t.Elem(), false)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem(), false)}
	case reflect.Struct:
		if t.Name() == "" {
			return d.members(t)
		}
		if _, known := d.schemas[t.Name()]; !known {
			d.schemas[t.Name()] = object{} // it may hold itself
			d.schemas[t.Name()] = d.named(t)
		}
		return ref(t.Name())
	}
	d.t.Fatalf("%v cannot be described", t)
	return nil
}

// named describes a type that stands among the components. What the configuration
// file has, too, is described as there.
func (d *describer) named(t reflect.Type) object {
	s := d.members(t)
	properties := s["properties"].(object)
	var file object
	service := d.config["properties"].(object)
	server := service["servers"].(object)["items"].(object)
	switch t {
	case reflect.TypeFor[control.ServiceSpec]():
		file = service
	case reflect.TypeFor[control.ServerSpec]():
		file = server["properties"].(object)
	case reflect.TypeFor[control.TunnelSpec]():
		file = server["properties"].(object)["tunnel"].(object)["properties"].(object)
	}
	for name := range properties {
		if file == nil || name == "servers" || name == "tunnel" {
			continue
		}
		if file[name] == nil {
			d.t.Errorf("%s has %s, and the configuration file has no such key", t.Name(), name)
		}
		properties[name] = file[name]
	}
	for name := range file {
		if properties[name] == nil {
			d.t.Errorf("the configuration file has the key %s, which %s lacks", name, t.Name())
		}
	}
	if file != nil {
		s["additionalProperties"] = false
	}
	if text := d.comments[t.Name()]; text != "" {
		s["description"] = text
	}
	return s
}

func (d *describer) members(t reflect.Type) object {
	properties := object{}
	var required []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous && name == "" {
			inner := d.members(f.Type)
			for k, v := range inner["properties"].(object) {
				properties[k] = v
			}
			more, _ := inner["required"].([]string)
			required = append(required, more...)
			continue
		}
		if name == "" {
			d.t.Errorf("%v.%s has no name in JSON", t, f.Name)
		}
		optional := strings.Contains(options, "omit")
		s := d.schema(f.Type, !optional)
		if text := d.comments[t.Name()+"."+f.Name]; text != "" {
			s["description"] = text // beside $ref, too: JSON Schema of 2020-12
		}
		properties[name] = s
		if !optional {
			required = append(required, name)
		}
	}
	s := object{"type": "object", "properties": properties}
	if required != nil {
		slices.Sort(required)
		s["required"] = slices.Compact(required)
	}
	return s
}
