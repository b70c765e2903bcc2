package dataplane

import (
	"reflect"
	"testing"
)

// A field that is added to what an image carries must be carried, too, or be named
// here as what is left out.
func TestImagesKnowEveryField(t *testing.T) {
	carried := map[reflect.Type][]string{
		reflect.TypeFor[Director](): {
			"seed", "table", "templates", "tunables", "defended", "estimated", "drops", "rules", "dests", "neighbours", "ftp", "sources",
			"verdicts", "choices", "paths", "servers", "standby", "bounced", "ipID", "retired", "past",
		},
		reflect.TypeFor[service]():      {"key", "stats", "onePacket", "config", "scheduler", "bounded", "dests", "removed"},
		reflect.TypeFor[rules]():        {"services", "vips", "order", "filter", "sources", "announced", "marks"},
		reflect.TypeFor[ftpHelper]():    {"waiting", "byFlow", "records", "free"},
		reflect.TypeFor[ftpRecord]():    {"refs", "expected", "next", "askedPASV", "askedEPSV", "replies", "edits"},
		reflect.TypeFor[sourcePool]():   {"owner", "ports", "free", "first", "n", "used"},
		reflect.TypeFor[neighbour]():    {"mac", "known", "fromHost", "permanent", "vital", "confirmed"},
		reflect.TypeFor[neighbourKey](): {"addr", "link", "vlan"},
		reflect.TypeFor[pathMTU]():      {"mtu", "expires"},
		reflect.TypeFor[Choices]():      {"Scheduled", "Fallback", "Template", "None", "Overloaded", "Abandoned", "Reused", "Expired"},
	}
	leftOut := map[reflect.Type][]string{
		// What the caller gives and tells; what waits; locks.
		reflect.TypeFor[Director](): {
			"forwarders", "decisions", "connMax", "local", "memory", "host", "links", "fragments", "localVIPs", "announce", "applying",
			"observed", "endings", "decided", "history", "snap", "seen",
		},
		reflect.TypeFor[service]():    {"mu"},
		reflect.TypeFor[ftpHelper]():  {"mu"},
		reflect.TypeFor[sourcePool](): {"mu", "gone"},
		reflect.TypeFor[neighbour]():  {"asked", "tries", "waiting"},
	}
	for kind, names := range carried {
		known := map[string]bool{}
		for _, n := range append(names, leftOut[kind]...) {
			known[n] = true
		}
		for i := range kind.NumField() {
			if name := kind.Field(i).Name; !known[name] {
				t.Errorf("%v.%s is neither carried by images nor named as left out", kind, name)
			}
			delete(known, kind.Field(i).Name)
		}
		for n := range known {
			t.Errorf("%v has no field %s", kind, n)
		}
	}
}
