package control

import (
	"bytes"
	"encoding/json"
)

// schema is a JSON Schema (draft 2020-12) of one value, as far as a configuration
// file needs it.
type schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Comment     string             `json:"$comment,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"` // a word, or a list of them
	Enum        []any              `json:"enum,omitempty"`
	Default     any                `json:"default,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	MinLength   int                `json:"minLength,omitempty"`
	MaxLength   int                `json:"maxLength,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	MinItems    int                `json:"minItems,omitempty"`
	MaxItems    int                `json:"maxItems,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Patterns    map[string]*schema `json:"patternProperties,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Not         *schema            `json:"not,omitempty"`
	AnyOf       []*schema          `json:"anyOf,omitempty"`
	AllOf       []*schema          `json:"allOf,omitempty"`
	If          *schema            `json:"if,omitempty"`
	Then        *schema            `json:"then,omitempty"`
	Else        *schema            `json:"else,omitempty"`
}

// field is a key of a mapping in the configuration file: its name, for the decoder,
// and what may stand there, for people and editors.
type field struct {
	name string
	help string
	is   *schema
}

// keys returns the fields' names, as value.mapping takes them.
func keys(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// mappingOf describes a mapping that has these keys and no others.
func mappingOf(fields []field, required ...string) *schema {
	s := &schema{Type: "object", Properties: map[string]*schema{}, Additional: new(bool), Required: required}
	for _, f := range fields {
		one := *f.is
		one.Description = f.help
		s.Properties[f.name] = &one
	}
	return s
}

func integerFrom(low, high int64) *schema {
	return &schema{Type: "integer", Minimum: &low, Maximum: &high}
}

func anyWord(list ...string) *schema {
	s := &schema{}
	for _, w := range list {
		s.Enum = append(s.Enum, w)
	}
	return s
}

func yesOrNo() *schema { return &schema{Type: "boolean", Default: false} }

func listOf(item *schema, most int) *schema {
	return &schema{Type: "array", Items: item, MaxItems: most}
}

// oneOrSome describes what value.oneOrMore reads.
func oneOrSome(item *schema) *schema { return &schema{AnyOf: []*schema{item, listOf(item, 0)}} }

// An address's pattern only holds off what is clearly none: a name, a port, a
// bracket. That each part is in range, the decoder sees.
const (
	address4Pattern = `[0-9]{1,3}(\.[0-9]{1,3}){3}`
	address6Pattern = `[0-9A-Fa-f]*:[0-9A-Fa-f:]*(:` + address4Pattern + `)?`
	addressPattern  = `^(` + address4Pattern + `|` + address6Pattern + `)$`
	prefixPattern   = `^(` + address4Pattern + `/[0-9]{1,2}|` + address6Pattern + `/[0-9]{1,3})$`
	networkPattern  = `^(` + address4Pattern + `(/[0-9]{1,2})?|` + address6Pattern + `(/[0-9]{1,3})?)$`
)

func pattern(p string) *schema { return &schema{Type: "string", Pattern: p} }

// portOrRange describes one item of what value.ports reads.
func portOrRange() *schema {
	return &schema{AnyOf: []*schema{integerFrom(1, 65535), pattern(`^[0-9]{1,5}(-[0-9]{1,5})?$`)}}
}

// only describes a mapping in which, if one of the keys is there, the value of key
// is one of values.
func only(key string, values []any, when ...string) *schema {
	s := &schema{Then: &schema{Properties: map[string]*schema{key: {Enum: values}}, Required: []string{key}}}
	s.If = &schema{}
	for _, name := range when {
		s.If.AnyOf = append(s.If.AnyOf, &schema{Required: []string{name}})
	}
	return s
}

// without describes a mapping that has none of the keys.
func without(names ...string) *schema {
	s := &schema{Not: &schema{}}
	for _, name := range names {
		s.Not.AnyOf = append(s.Not.AnyOf, &schema{Required: []string{name}})
	}
	return s
}

// SettingRange is one of the settings under sysctl, by its name without
// net.ipv4.vs, and the largest value it takes.
type SettingRange struct {
	Name string
	Most int64
}

// Schema returns the JSON Schema of configuration files, for editors, with the
// settings that the director has. It is made of the same tables as the decoder's
// keys. Not all that Parse refuses can be said in a schema: what depends on two
// places (a VIP that is also a source, two services that are one, a route to a link
// that is not there), the ranges inside an address, and numbers that are not written
// in decimal digits.
func Schema(settings []SettingRange) []byte {
	s := mappingOf(configFields(), "links", "services")
	s.Dialect = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "Configuration of pktdirector"
	s.Comment = "Made by \"pktdirector config schema\". What depends on two places of the file, ranges inside addresses and how numbers are written, only \"pktdirector check\" sees."
	named := s.Properties["sysctl"]
	named.Patterns = nil
	named.Properties = map[string]*schema{}
	for _, one := range settings {
		named.Properties[one.Name] = integerFrom(0, one.Most)
		named.Properties[sysctlPrefix+one.Name] = integerFrom(0, one.Most)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(s) // plain values, into memory
	return b.Bytes()
}
