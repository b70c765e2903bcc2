package metrics_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// dashboard is what Grafana's JSON says, as far as the test looks.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type, Definition string
			Datasource             source
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  source
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct {
			Datasource                source
			RefID, Expr, LegendFormat string
		}
	}
}

type source struct{ Type, UID string }

// exposed lists the labels of each metric that a director shows, job and instance,
// which Prometheus adds, among them.
func exposed(t testing.TB) map[string][]string {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(collector(known()), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, f := range all {
		names[f.GetName()] = []string{"job", "instance"}
		for _, l := range f.GetMetric()[0].GetLabel() {
			names[f.GetName()] = append(names[f.GetName()], l.GetName())
		}
	}
	return names
}

// query checks a PromQL expression: each name is a metric that is there, or a function,
// and each label one that the metric has. It returns the metrics.
func query(t *testing.T, where, expr string, there map[string][]string) (used []string) {
	t.Helper()
	words := []string{"rate", "time", "sum", "by", "on", "max", "label_values", "instance", "job", "table", "local_address"}
	selector := regexp.MustCompile(`([a-z_:]+)\{([^}]*)\}`)
	matcher := regexp.MustCompile(`^([a-z_]+)(=|!=|=~|!~)"([^"]*)"$`)
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		labels, ok := there[m[1]]
		if !ok {
			t.Errorf("%s: %s is shown by no director", where, m[1])
			continue
		}
		used = append(used, m[1])
		for _, one := range strings.Split(m[2], ",") {
			parts := matcher.FindStringSubmatch(one)
			if parts == nil || !slices.Contains(labels, parts[1]) {
				t.Errorf("%s: %s has no label for %q: it has %v", where, m[1], one, labels)
			} else if _, err := regexp.Compile(strings.ReplaceAll(parts[3], "$", "")); err != nil {
				t.Errorf("%s: %v", where, err)
			}
		}
	}
	rest := regexp.MustCompile(`\[\$__rate_interval\]`).ReplaceAllString(selector.ReplaceAllString(expr, ""), "")
	for _, word := range regexp.MustCompile(`[a-z_]+`).FindAllString(rest, -1) {
		if _, metric := there[word]; metric {
			used = append(used, word)
		} else if !slices.Contains(words, word) {
			t.Errorf("%s: what is %q?", where, word)
		}
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
		t.Errorf("%s: brackets of %q", where, expr)
	}
	return used
}

// TestTheDashboard holds docs/grafana/pktdirector.json against what a director shows.
func TestTheDashboard(t *testing.T) {
	b, err := os.ReadFile("../docs/grafana/pktdirector.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 || len(d.Panels) < 20 {
		t.Errorf("uid %q, title %q, schema %d, %d panels", d.UID, d.Title, d.SchemaVersion, len(d.Panels))
	}
	there := exposed(t)
	chosen := source{"prometheus", "${datasource}"}
	if first := d.Templating.List[0]; first.Name != "datasource" || first.Type != "datasource" {
		t.Errorf("the first variable is %+v, not the data source", first)
	}
	for _, v := range d.Templating.List[1:] {
		if v.Datasource != chosen || len(query(t, "variable "+v.Name, v.Definition, there)) == 0 {
			t.Errorf("variable %s asks %+v for %q", v.Name, v.Datasource, v.Definition)
		}
	}
	var used []string
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d: id %d is there twice or 0, or no title: %q", i, p.ID, p.Title)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > 24 {
			t.Errorf("%s lies at %+v, outside of 24 columns", p.Title, g)
		}
		for _, o := range d.Panels[:i] {
			h := o.GridPos
			if g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H {
				t.Errorf("%s lies upon %s", p.Title, o.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource != chosen || len(p.Targets) == 0 {
			t.Errorf("%s asks %+v, %d queries", p.Title, p.Datasource, len(p.Targets))
		}
		for _, q := range p.Targets {
			names := query(t, p.Title, q.Expr, there)
			if len(names) == 0 || q.Datasource != chosen || q.RefID == "" {
				t.Errorf("%s: query %s %q asks %+v for nothing", p.Title, q.RefID, q.Expr, q.Datasource)
			}
			used = append(used, names...)
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if len(names) > 0 && !slices.Contains(there[names[0]], m[1]) {
					t.Errorf("%s: the legend has %s, which %s has not", p.Title, m[0], names[0])
				}
			}
			if strings.Contains(q.Expr, "_total{") && !strings.HasPrefix(q.Expr, "rate(") {
				t.Errorf("%s: a counter without rate: %s", p.Title, q.Expr)
			}
		}
	}
	for _, name := range []string{"pktdirector_packets_total", "pktdirector_scheduler_decisions_total", "pktdirector_table_entries", "pktdirector_link_receive_drops_total", "pktdirector_server_active_connections"} {
		if !slices.Contains(used, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
}
