package control_test

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pktdirector/conntrack"
	"pktdirector/control"
)

// stock is a Source of connections that counts how many it was asked for.
type stock struct {
	fixed
	asked  []conntrack.Filter
	yields int
	ended  []conntrack.Filter
}

func (s *stock) Connections(f conntrack.Filter, yield func(control.Connection) bool) {
	s.asked = append(s.asked, f)
	for i := range 50_000 {
		s.yields++
		if !yield(control.Connection{Protocol: "TCP", Client: "198.51.100.7", ClientPort: uint16(i), VIP: "192.0.2.10", Destination: "10.2.0.1", Age: int64(i * 7919 % 50_000)}) {
			return
		}
	}
}

func (s *stock) EndConnections(_ string, f conntrack.Filter, dry bool) (control.Ended, error) {
	s.ended = append(s.ended, f)
	return control.Ended{Connections: 3, Templates: 1, DryRun: dry}, nil
}

// The director filters, sorts and limits, and stops where enough was said.
func TestClientAsksForSomeConnections(t *testing.T) {
	path := t.TempDir() + "/d.sock"
	s := &stock{}
	defer serve(t, path, s)()
	c := control.NewClient(path)
	peer := conntrack.Peer{Net: netip.MustParsePrefix("198.51.100.0/24")}
	q := control.ConnQuery{Filter: conntrack.Filter{Client: peer}, Limit: 5}
	read := func(q control.ConnQuery) (got []control.Connection) {
		t.Helper()
		for one, err := range c.SelectConnections(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, one)
		}
		return got
	}
	if got := read(q); len(got) != 5 || s.asked[0].Client != peer || s.yields > 5 {
		t.Errorf("%d came, %d were looked at, by the filter %+v", len(got), s.yields, s.asked[0])
	}
	q.Sort = "age"
	got := read(q)
	for i, one := range got {
		if want := int64(49_999 - i); one.Age != want {
			t.Errorf("number %d is %d old, want %d", i, one.Age, want)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d came", len(got))
	}
	q.Limit = 0
	if got := read(q); len(got) != 50_000 || !slices.IsSortedFunc(got, func(a, b control.Connection) int { return int(b.Age - a.Age) }) {
		t.Errorf("%d came, or not sorted", len(got))
	}
}

// Nobody ends all connections by leaving out a filter.
func TestEndingConnectionsNeedsAFilter(t *testing.T) {
	path := t.TempDir() + "/d.sock"
	s := &stock{}
	defer serve(t, path, s)()
	c := control.NewClient(path)
	refused := func(what string, status int, remedy string, err error) {
		t.Helper()
		p := (*control.Problem)(nil)
		if !errors.As(err, &p) || p.Status != status || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v, want status %d and %q", what, err, status, remedy)
		}
		if len(s.ended) != 0 {
			t.Errorf("%s: connections were ended all the same", what)
		}
	}
	_, err := c.EndConnections(t.Context(), conntrack.Filter{}, false, false)
	refused("no filter", http.StatusBadRequest, "all=true", err)
	_, err = c.EndConnections(t.Context(), conntrack.Filter{Kinds: conntrack.Templates}, false, false)
	refused("only a kind", http.StatusBadRequest, "all=true", err)
	some := conntrack.Filter{Client: conntrack.Peer{Port: 7}}
	_, err = c.EndConnections(t.Context(), some, true, false)
	refused("a filter and all", http.StatusBadRequest, "leave one of them out", err)

	for _, f := range []conntrack.Filter{some, {Kinds: conntrack.Templates, Client: some.Client}, {Kinds: conntrack.AllKinds, Client: some.Client}} {
		s.ended = nil
		got, err := c.EndConnections(t.Context(), f, false, true)
		if want := (control.Ended{Connections: 3, Templates: 1, DryRun: true}); err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
		want := f
		if f.Kinds == 0 {
			want.Kinds = conntrack.Connections
		} else if f.Kinds == conntrack.AllKinds {
			want.Kinds = 0
		}
		if len(s.ended) != 1 || s.ended[0] != want {
			t.Errorf("%+v ended %+v", f, s.ended)
		}
	}
	s.ended = nil
	if _, err := c.EndConnections(t.Context(), conntrack.Filter{}, true, false); err != nil || len(s.ended) != 1 {
		t.Errorf("all: %v, %+v", err, s.ended)
	}
}

// A wide listing stands in columns, with n/a where replies are not seen.
func TestTheWideListing(t *testing.T) {
	var b strings.Builder
	n, err := control.WriteConnectionTable(&b, func(yield func(control.Connection, error) bool) {
		_ = yield(control.Connection{Protocol: "TCP", Client: "198.51.100.7", VIP: "192.0.2.10", Port: 80, Destination: "10.2.0.1", DestinationPort: 80, Method: "Route", State: "NONE", Template: true, Age: 90061, Expires: 299}, nil) &&
			yield(control.Connection{Protocol: "TCP", Client: "198.51.100.7", ClientPort: 40000, VIP: "192.0.2.10", Port: 80, Destination: "10.2.0.1", DestinationPort: 80, Method: "Route", State: "ESTABLISHED", Age: 125, Idle: 5, Expires: 895, Requests: &control.Traffic{Packets: 12, Bytes: 3456}}, nil) &&
			yield(control.Connection{Protocol: "UDP", Client: "2001:db8::7", ClientPort: 53, VIP: "2001:db8::10", Port: 53, Destination: "2001:db8:2::1", DestinationPort: 53, Method: "Masq", State: "UDP", Age: 3725, Expires: 300, Requests: &control.Traffic{Packets: 1, Bytes: 60}, Replies: &control.Traffic{Packets: 1, Bytes: 123456789012}}, nil)
	})
	want := `Pro Client             VIP               Server             Forward State         Age Idle Expires InPkts InBytes OutPkts     OutBytes
TCP 198.51.100.7:0     192.0.2.10:80     10.2.0.1:80        Route   NONE        1d01h   0s   4m59s      -       -       -            -
TCP 198.51.100.7:40000 192.0.2.10:80     10.2.0.1:80        Route   ESTABLISHED 2m05s   5s  14m55s     12    3456     n/a          n/a
UDP [2001:db8::7]:53   [2001:db8::10]:53 [2001:db8:2::1]:53 Masq    UDP         1h02m   0s   5m00s      1      60       1 123456789012
`
	if n != 3 || err != nil || b.String() != want {
		t.Errorf("%d, %v:\n%s\nwant\n%s", n, err, b.String(), want)
	}
}
