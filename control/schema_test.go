package control_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"pktdirector/control"
	"pktdirector/dataplane"
)

// editorSchema is the schema that editors get, as another program reads it.
func editorSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	var settings []control.SettingRange
	for _, s := range dataplane.Settings() {
		settings = append(settings, control.SettingRange{Name: s.Name, Most: int64(s.Most)})
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(control.Schema(settings)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("director.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("director.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate holds a YAML text against the schema, as an editor does.
func validate(t testing.TB, s *jsonschema.Schema, text string) error {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal([]byte(strings.TrimPrefix(text, "\ufeff")), &tree); err != nil {
		return err
	}
	j, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(j))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// TestTheSchemaTakesWhatParseTakes: an editor marks nothing that is right.
func TestTheSchemaTakesWhatParseTakes(t *testing.T) {
	s := editorSchema(t)
	files := map[string]string{"good": good, "whole": whole, "fullnat": fullNATFile, "minimal": string(control.Minimal("eth0")),
		"no service":          "links: [{name: eth0}]\nservices: []\n",
		"a route":             "links: [{name: eth0}]\nroutes: [{to: 10.0.0.0/8, via: 10.2.0.1}]\nservices: []\n",
		"a name of digits":    "links: [{name: 7}]\nservices: []\n",
		"masks of all kinds":  strings.Replace(whole, "255.255.255.0", "255.0.255.0", 1),
		"a mask of nothing":   strings.Replace(whole, "255.255.255.0", "0.0.0.0", 1),
		"an engine":           strings.Replace(whole, "flags:", "persistence_engine: sip\n    flags:", 1),
		"each packet's port":  strings.Replace(good, "port: 8080", "port: 0", 1),
		"a mark without rule": strings.Replace(whole, "{fwmark: 2, ops: true}", "{fwmark: 9}", 1),
		"a mapped address":    strings.Replace(good, "10.2.0.1", `"64:ff9b::10.2.0.1", method: tun`, 1),
	}
	files["a mapped address"] = strings.Replace(files["a mapped address"], ", port: 8080", "", 1)
	reference, err := os.ReadFile("../docs/director.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files["docs/director.yaml"] = string(reference)
	for name, text := range files {
		if _, err := control.Parse(name, []byte(text)); err != nil {
			t.Errorf("%s: Parse: %v", name, err)
		}
		if err := validate(t, s, text); err != nil {
			t.Errorf("%s: the schema refuses what Parse takes: %v", name, err)
		}
	}
}
