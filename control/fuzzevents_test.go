package control_test

import (
	"net/url"
	"testing"

	"pktdirector/control"
)

// FuzzEventFilter: a query is refused, or written and read again as the same filter,
// which chooses the same.
func FuzzEventFilter(f *testing.F) {
	for _, q := range []string{"kind=drop,state&client=198.51.100.0/24", "service=fwm-1&state=ESTABLISHED", "verdict=no_route&filter=tcp port 80", "server=[2001:db8::1]:80&vip=:80"} {
		f.Add(q)
	}
	all := subjects()
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		one, err := control.ParseEventFilter(v)
		if err != nil {
			return
		}
		two, err := control.ParseEventFilter(one.Values())
		if err != nil || one.Values().Encode() != two.Values().Encode() {
			t.Fatalf("%q is written as %q: %v", query, one.Values().Encode(), err)
		}
		for name, s := range all {
			if control.Chooses(&one, kindOf(name), s) != control.Chooses(&two, kindOf(name), s) {
				t.Errorf("%q: %s is chosen otherwise when written and read again", query, name)
			}
		}
	})
}
