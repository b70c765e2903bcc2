package dataplane_test

import (
	"bytes"
	"fmt"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// withOptions returns an IPv4 packet with the options in its header.
func withOptions(p *packet.Packet, options ...byte) *packet.Packet {
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	b := p.Bytes()
	raw := append(append(bytes.Clone(b[:20]), options...), b[20:]...)
	raw[0] += byte(len(options) / 4)
	raw[2], raw[3] = byte(len(raw)>>8), byte(len(raw))
	packet.PutIPv4Checksum(raw[:20+len(options)])
	return packettest.Packet(raw, packet.EtherIPv4)
}

// Options of a request: those that are right are kept, and filled in where they
// ask for it; a source route is dropped in silence; of a broken one the sender is
// told the place, by the VIP. The connection is none the wiser.
func TestOptionsOfARequest(t *testing.T) {
	const kept, bad, route = dataplane.Forwarded, dataplane.BadOptions, dataplane.SourceRoute
	for _, c := range []struct {
		name    string
		options []byte
		verdict dataplane.Verdict
		at      byte   // of the parameter problem
		becomes []byte // nil: unchanged
	}{
		{"no operation", []byte{1, 1, 1, 1}, kept, 0, nil},
		{"router alert", []byte{148, 4, 0, 0}, kept, 0, nil},
		{"a security option, which nobody knows any more", []byte{130, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0}, kept, 0, nil},
		{"record route with room for one", []byte{7, 7, 4, 0, 0, 0, 0, 0}, kept, 0, []byte{7, 7, 8, 203, 0, 113, 80, 0}},
		{"record route that is full", []byte{7, 7, 8, 1, 2, 3, 4, 0}, kept, 0, nil},
		{"record route behind no operations", []byte{1, 1, 7, 7, 4, 0, 0, 0, 0, 0, 0, 0}, kept, 0, []byte{1, 1, 7, 7, 8, 203, 0, 113, 80, 0, 0, 0}},
		{"record route with a pointer into its head", []byte{7, 7, 3, 0, 0, 0, 0, 0}, bad, 22, nil},
		{"record route with room for half an address", []byte{7, 9, 8, 1, 2, 3, 4, 0, 0, 0, 0, 0}, bad, 22, nil},
		{"record route of two bytes", []byte{7, 2, 0, 0}, bad, 21, nil},
		{"record route twice", []byte{7, 7, 4, 0, 0, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0, 0}, bad, 27, nil},
		{"timestamp with a pointer into its head", []byte{68, 8, 4, 0, 0, 0, 0, 0}, bad, 22, nil},
		{"router alert that is too short", []byte{148, 3, 0, 0}, bad, 21, nil},
		{"a length beyond the header", []byte{7, 39, 4, 0}, bad, 20, nil},
		{"a length of 1", []byte{130, 1, 0, 0}, bad, 20, nil},
		{"a length of 0", []byte{130, 0, 0, 0}, bad, 20, nil},
		{"an option that ends behind its first byte", []byte{1, 1, 1, 130}, bad, 23, nil},
		{"rubbish behind the end of the list", []byte{0, 130, 0, 0}, kept, 0, nil},
		{"loose source route", []byte{131, 7, 4, 192, 0, 2, 11, 0}, route, 0, nil},
		{"strict source route", []byte{137, 7, 4, 192, 0, 2, 11, 0}, route, 0, nil},
		{"a source route that was followed to its end", []byte{131, 7, 8, 192, 0, 2, 11, 0}, route, 0, nil},
	} {
		for _, m := range methods() {
			t.Run(fmt.Sprintf("%s, %s", c.name, m.Short()), func(t *testing.T) {
				w := newWorld(t, service("rr", m, 1))
				p := withOptions(w.syn("40000"), c.options...)
				sent := bytes.Clone(p.Bytes())
				out := w.in(clientLink, p)
				w.wantVerdict(c.verdict, 1)
				if n := len(w.entries(40000)); n != map[bool]int{true: 1}[c.verdict == kept] {
					t.Errorf("%d entries", n)
				}
				switch c.verdict {
				case route:
					if len(out) != 0 {
						t.Errorf("%v left", summaries(out))
					}
				case bad:
					e := one(t, out)
					b := e.Buf[e.L4:e.End]
					if e.Flow.Src != addr(vip) || e.Flow.Dst != addr(client) || b[0] != 12 || b[1] != 0 || b[4] != c.at {
						t.Errorf("%v, ICMP %d/%d, pointer %d; want 12/0 from the VIP, pointer %d", e.Flow, b[0], b[1], b[4], c.at)
					}
					if !bytes.Equal(b[8:], sent) {
						t.Errorf("quotes\n%x\nwant what came\n%x", b[8:], sent)
					}
				default:
					got := innermost(one(t, out).Bytes())
					want := sent[20 : len(sent)-20]
					if c.becomes != nil {
						want = c.becomes
					}
					if !bytes.Equal(got[20:20+len(want)], want) {
						t.Errorf("options left as %x, want %x", got[20:20+len(want)], want)
					}
				}
			})
		}
	}
}

// Options of a masqueraded server's reply are judged the same, and its route goes
// on from the VIP.
func TestOptionsOfAReply(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []byte
		verdict dataplane.Verdict
		becomes []byte
	}{
		{"record route", []byte{7, 7, 4, 0, 0, 0, 0, 0}, dataplane.Replied, []byte{7, 7, 8, 203, 0, 113, 80, 0}},
		{"a source route", []byte{131, 7, 4, 192, 0, 2, 11, 0}, dataplane.SourceRoute, nil},
		{"a length of 0", []byte{130, 0, 0, 0}, dataplane.BadOptions, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, service("rr", lvs.Masq, 1))
			w.establish("40000")
			before := w.d.Count(c.verdict)
			out := w.in(serverLink, withOptions(answer(t, 1, "40000", packet.RST), c.options...))
			if n := w.d.Count(c.verdict) - before; n != 1 {
				t.Errorf("%v counted %d times", c.verdict, n)
			}
			if c.verdict != dataplane.Replied {
				if state := w.entries(40000)[0].State; state.String() != "ESTABLISHED" {
					t.Errorf("a reply that did not pass left %v", state)
				}
			}
			switch c.verdict {
			case dataplane.SourceRoute:
				if len(out) != 0 {
					t.Errorf("%v left", summaries(out))
				}
			case dataplane.BadOptions:
				e := one(t, out)
				if b := e.Buf[e.L4:]; b[0] != 12 || b[4] != 20 || e.Flow.Src != addr("192.0.2.254") || e.Flow.Dst != addr(rip(1)) || e.Link != serverLink {
					t.Errorf("%v by link %d: ICMP %d, pointer %d", e.Flow, e.Link, b[0], b[4])
				}
			default:
				if got := one(t, out).Bytes()[20 : 20+len(c.becomes)]; !bytes.Equal(got, c.becomes) {
					t.Errorf("options left as %x, want %x", got, c.becomes)
				}
			}
		})
	}
}

// Where the TTL is used up, in every mode, direction and IP version: the sender is
// told, nothing passes. A request counts for its connection all the same; a reply
// does not, and an ICMP error is dropped in silence.
func TestTTLUsedUpInEveryDirection(t *testing.T) {
	for _, ttl := range []byte{0, 1} {
		for _, x := range ways(false) {
			if x.pieces {
				continue
			}
			t.Run(fmt.Sprintf("%s, TTL %d", x, ttl), func(t *testing.T) {
				s, e := service("rr", x.method, 1), endsOf(x.v6)
				if x.v6 {
					s = service6("rr", x.method, 1)
				}
				w := newWorld(t, s)
				spend := func(p *packet.Packet) *packet.Packet {
					p.Bytes()[ttlAt(p.Bytes())] = ttl
					if !x.v6 {
						packet.PutIPv4Checksum(p.Bytes()[:20])
					}
					return p
				}
				link, from, to := clientLink, e.vip, e.client
				p := carrying(packet.TCP, e.client, e.vip, transport(packet.TCP, 40000, 80, true))
				if x.reply {
					w.in(clientLink, p)
					p = carrying(packet.TCP, e.server, e.client, transport(packet.TCP, 8080, 40000, false))
					link, from, to = serverLink, map[bool]string{false: "192.0.2.254", true: "2001:db8:2::fe"}[x.v6], e.server
				}
				sent := bytes.Clone(spend(p).Bytes())
				told := one(t, w.in(link, p))
				b := told.Buf[told.L4:told.End]
				if kind := map[bool]byte{false: 11, true: 3}[x.v6]; b[0] != kind || b[1] != 0 || told.Flow.Src != addr(from) || told.Flow.Dst != addr(to) || told.Link != link {
					t.Errorf("%v by link %d: %d/%d; want %d/0 from %s to %s", told.Flow, told.Link, b[0], b[1], kind, from, to)
				}
				if !bytes.Equal(b[8:], sent) {
					t.Errorf("quotes\n%x\nwant\n%x", b[8:], sent)
				}
				w.wantVerdict(dataplane.TTLExceeded, 1)
				if n := len(w.entries(40000)); n != 1 {
					t.Errorf("%d entries, want 1", n)
				}
				// An ICMP error about the connection, the same way.
				quote := carrying(packet.TCP, e.vip, e.client, transport(packet.TCP, 80, 40000, false)).Bytes()
				src, dst, kind := e.client, e.vip, byte(3)
				if x.reply {
					quote = carrying(packet.TCP, e.client, e.server, transport(packet.TCP, 40000, 8080, false)).Bytes()
					src, dst = e.server, e.client
				}
				if x.v6 {
					kind = 1
				}
				if out := w.in(link, spend(icmpFrom(src, dst, kind, 1, 0, quote))); len(out) != 0 {
					t.Errorf("an ICMP error: %v left", summaries(out))
				}
				w.wantVerdict(dataplane.TTLExceeded, 2)
			})
		}
	}
}
