package control_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/dataplane"
)

// wrongLine changes testdata/base.yaml in one place into what must be refused.
type wrongLine struct {
	Name, Old, New string
	Place          string // line:column
	Value, Remedy  string // parts of the message
	// Schema: an editor sees it, too. What depends on two places of the file, on
	// ranges inside an address, or on how a number is written, no schema can say.
	Schema bool
}

func wrongLines(t *testing.T) (base string, rows []wrongLine) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "testdata/wrong-config.json")), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) < 80 {
		t.Fatalf("%d wrong lines", len(rows))
	}
	return read(t, "testdata/base.yaml"), rows
}

// TestEveryWrongLineIsRefusedInItsPlace: the first fault told names file, line and
// column, the value, and what would be right; editors see by the schema what a schema
// can say.
func TestEveryWrongLineIsRefusedInItsPlace(t *testing.T) {
	base, rows := wrongLines(t)
	schema := editorSchema(t)
	if _, err := control.Parse("d.yaml", []byte(base)); err != nil {
		t.Fatal(err)
	}
	if err := validate(t, schema, base); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Run(r.Name, func(t *testing.T) {
			text := strings.Replace(base, r.Old, r.New, 1)
			if text == base {
				t.Fatal("the case changes nothing")
			}
			c, err := control.Parse("d.yaml", []byte(text))
			if err == nil {
				err = c.CheckSysctl(dataplane.CheckTunable)
			} else if c != nil {
				t.Errorf("refused, and yet there is a configuration")
			}
			if err == nil {
				t.Fatalf("taken:\n%s", text)
			}
			first, _, _ := strings.Cut(err.Error(), "\n")
			if !strings.HasPrefix(first, "d.yaml:"+r.Place+": ") || !strings.Contains(first, r.Value) || !strings.Contains(first, r.Remedy) || r.Remedy == "" {
				t.Errorf("got\n%s\nwant the place %s, the value %q and the remedy %q", first, r.Place, r.Value, r.Remedy)
			}
			if seen := validate(t, schema, text); (seen != nil) != r.Schema {
				t.Errorf("the schema says %v", seen)
			}
		})
	}
}
