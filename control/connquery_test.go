package control_test

import (
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

func query(t testing.TB, text string) url.Values {
	t.Helper()
	v, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFiltersOfConnections(t *testing.T) {
	net := netip.MustParsePrefix
	peer := func(n string, port uint16) conntrack.Peer { return conntrack.Peer{Net: net(n), Port: port} }
	service := lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80}
	for text, want := range map[string]control.ConnQuery{
		"":                                    {},
		"kind=all":                            {},
		"kind=connections":                    {Filter: conntrack.Filter{Kinds: conntrack.Connections}},
		"kind=templates&protocol=UDP":         {Filter: conntrack.Filter{Kinds: conntrack.Templates, Proto: packet.UDP}},
		"client=198.51.100.7":                 {Filter: conntrack.Filter{Client: peer("198.51.100.7/32", 0)}},
		"client=::ffff:198.51.100.7":          {Filter: conntrack.Filter{Client: peer("198.51.100.7/32", 0)}},
		"client=198.51.100.0/24&server=:8080": {Filter: conntrack.Filter{Client: peer("198.51.100.0/24", 0), Server: conntrack.Peer{Port: 8080}}},
		"client=[2001:db8::7]:40000":          {Filter: conntrack.Filter{Client: peer("2001:db8::7/128", 40000)}},
		"vip=2001:db8::/32":                   {Filter: conntrack.Filter{VIP: peer("2001:db8::/32", 0)}},
		"vip=192.0.2.10:80&service=tcp-192.0.2.10-80": {Filter: conntrack.Filter{VIP: peer("192.0.2.10/32", 80), Service: &service}},
		"state=udp,fin_wait":                          {Filter: conntrack.Filter{States: conntrack.States(0).With(conntrack.UDP).With(conntrack.FinWait)}},
		"state=ESTABLISHED":                           {Filter: conntrack.Filter{States: conntrack.States(0).With(conntrack.Established).With(conntrack.SCTPEstablished)}},
		"older=90&younger=2h":                         {Filter: conntrack.Filter{Older: 90 * time.Second, Younger: 2 * time.Hour}},
		"idle=1m30s&sort=-bytes&limit=7":              {Filter: conntrack.Filter{Idle: 90 * time.Second}, Sort: "-bytes", Limit: 7},
	} {
		got, err := control.ParseConnQuery(query(t, text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v (%v), want %+v", text, got, err, want)
		}
		again, err := control.ParseConnQuery(got.Values())
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%q was written %q and read as %+v (%v)", text, got.Values().Encode(), again, err)
		}
	}
}

// What makes no sense is refused by an error with name, value and what would be
// right.
func TestFiltersThatMakeNoSense(t *testing.T) {
	for text, remedy := range map[string]string{
		"colour=red":              "no such parameter",
		"kind=pods":               "connections, templates or all",
		"protocol=icmp":           "tcp, udp or sctp",
		"client=198.51.100.256":   "write an address",
		"client=198.51.100.7/24":  "write 198.51.100.0/24",
		"client=198.51.100.7:0":   "write an address",
		"client=2001:db8::7:x":    "write an address",
		"client=[198.51.100.7]:1": "write an address",
		"client=fe80::1%25eth0":   "zone",
		"client=":                 "write an address",
		"server=web1:80":          "write an address",
		"vip=192.0.2.0/24:80":     "write an address",
		"service=web":             "tcp-192.0.2.10-80",
		"state=OPEN":              "ESTABLISHED",
		"state=":                  "ESTABLISHED",
		"older=-5":                "above 0",
		"older=soon":              "90s",
		"younger=0":               "above 0",
		"idle=9999999h":           "90s",
		"older=2h&younger=1h":     "older must be less than younger",
		"sort=colour":             "packets, bytes",
		"limit=0":                 "from 1 on",
		"limit=many":              "from 1 on",
		"limit=1&limit=2":         "more than once",
	} {
		_, err := control.ParseConnQuery(query(t, text))
		name, value, _ := strings.Cut(text, "=")
		if err == nil || !strings.HasPrefix(err.Error(), name+": ") || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%q: %v, want the name %s, and %q", text, err, name, remedy)
		}
		if plain, _, more := strings.Cut(value, "&"); err != nil && !more && !strings.Contains(text, "%") && !strings.Contains(err.Error(), `"`+plain+`"`) {
			t.Errorf("%q: the error does not say %q: %v", text, plain, err)
		}
	}
}

// FuzzConnQuery reads filters of connections: what is read is written so that it is
// read as the same, and any filter can look at any entry.
func FuzzConnQuery(f *testing.F) {
	f.Add("kind=templates&protocol=udp&client=198.51.100.0/24&state=UDP,FIN_WAIT&older=90&sort=-age&limit=3")
	f.Add("client=[2001:db8::7]:40000&vip=:80&server=2001:db8::/3&service=fwm-1-ipv6&younger=2h&idle=1ms")
	f.Add("service=tcp-192.0.2.10-80&state=established")
	table := conntrack.New(1, 1, func(*conntrack.Conn) {})
	entries := []conntrack.Conn{
		{Client: packet.MustParseAddr("10.0.0.1")}, {Proto: packet.TCP, Client: packet.MustParseAddr("198.51.100.7"), ClientPort: 1, Virtual: packet.MustParseAddr("192.0.2.10"), VirtualPort: 80, State: conntrack.SCTPClosed},
		{Proto: packet.UDP, Client: packet.MustParseAddr("2001:db8::7"), Flags: conntrack.Template},
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := control.ParseConnQuery(v)
		if err != nil {
			if !strings.Contains(err.Error(), ": ") {
				t.Fatalf("%q: an error that says little: %v", text, err)
			}
			return
		}
		again, err := control.ParseConnQuery(q.Values())
		if err != nil || !reflect.DeepEqual(q, again) {
			t.Fatalf("%+v was written %q and read as %+v (%v)", q, q.Values().Encode(), again, err)
		}
		m := table.Matcher(q.Filter)
		for i := range entries {
			if m.Matches(&entries[i], nil) && q.Client.Net.IsValid() && !q.Client.Net.Contains(entries[i].Client.Netip()) {
				t.Fatalf("%q chooses %v", text, entries[i].Client)
			}
		}
	})
}

// Sorted connections are those of a sort of all, however few are kept.
func TestSortingConnections(t *testing.T) {
	var all []control.Connection
	for i := range 200 {
		c := control.Connection{
			Client: netip.AddrFrom4([4]byte{198, 51, 100, byte(i * 37)}).String(), ClientPort: uint16(i % 7), VIP: "192.0.2.10", Destination: "10.2.0.1",
			Age: int64(i * 31 % 50), Idle: int64(i % 3), Expires: int64(i % 11), State: []string{"NONE", "ESTABLISHED"}[i%2],
			Requests: &control.Traffic{Packets: uint64(i * 53 % 100), Bytes: uint64(i * 7919 % 1000)},
		}
		if i%3 != 0 {
			c.Replies = &control.Traffic{Packets: 1, Bytes: uint64(i)}
		}
		all = append(all, c)
	}
	key := func(by string, c control.Connection) string {
		a := netip.MustParseAddr(c.Client).As4()
		sum := c.Requests.Bytes
		if c.Replies != nil {
			sum += c.Replies.Bytes
		}
		switch by {
		case "client":
			return string(a[:]) + string(rune(c.ClientPort))
		case "age":
			return string(rune(1000 - c.Age))
		case "bytes":
			return string(rune(5000 - sum))
		}
		return string(rune(c.Expires))
	}
	for _, by := range []string{"client", "age", "bytes", "expires"} {
		want := slices.Clone(all)
		slices.SortStableFunc(want, func(a, b control.Connection) int { return strings.Compare(key(by, a), key(by, b)) })
		for _, most := range []int{0, 1, 7, 199, 200, 500} {
			n := most
			if n == 0 || n > len(want) {
				n = len(want)
			}
			if got := control.FirstOf(by, slices.Values(all), most); !reflect.DeepEqual(got, want[:n]) {
				t.Errorf("by %s, the first %d: %d came, and not as a sort has them", by, most, len(got))
			}
		}
		back := control.FirstOf("-"+by, slices.Values(all), 1)
		if key(by, back[0]) != key(by, want[len(want)-1]) {
			t.Errorf("by -%s the first is %+v, want %+v", by, back[0], want[len(want)-1])
		}
	}
}
