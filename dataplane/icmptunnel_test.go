package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// tunnelWorld has one tunnelled UDP service on port 80 of a VIP, one real server,
// each of either family, and a client's connection. It returns the first tunnel
// packet.
func tunnelWorld(t *testing.T, inner6, outer6 bool) (w *world, from string, sent []byte) {
	from, virtual, server := client+":4000", vip, rip(1)
	if inner6 {
		from, virtual = "[2001:db8:1::10]:4000", vip6
	}
	if outer6 {
		server = rip6(1)
	}
	w = newWorld(t, lvs.VirtualService{
		ServiceKey: lvs.ServiceKey{Proto: packet.UDP, VIP: addr(virtual), Port: 80}, Scheduler: "rr",
		Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr(server), Port: 80}, Method: lvs.Tunnel, Weight: 1}},
	})
	return w, from, one(t, w.in(clientLink, w.datagram(from, virtual, 1000))).Bytes()
}

// datagram is a packet of n bytes to port 80, with don't-fragment.
func (w *world) datagram(from, virtual string, n int) *packet.Packet {
	header := 28
	if !addr(virtual).Is4() {
		header = 48
	}
	return packettest.Build(w.t, packettest.Spec{Src: from, Dst: netip.AddrPortFrom(netip.MustParseAddr(virtual), 80).String(), UDP: true, Payload: make([]byte, n-header)})
}

// aboutTunnel is an error of a router on the servers' side about a tunnel packet.
func aboutTunnel(kind, code byte, mtu uint32, quote []byte) *packet.Packet {
	if quote[0]>>4 == 6 {
		return icmpFrom("2001:db8:2::99", "2001:db8:2::fe", kind, code, mtu, quote)
	}
	return icmpFrom("192.0.2.99", "192.0.2.254", kind, code, mtu, quote)
}

func families(do func(name string, inner6, outer6 bool)) {
	do("IPv4 in IPv4", false, false)
	do("IPv6 in IPv4", true, false)
	do("IPv4 in IPv6", false, true)
	do("IPv6 in IPv6", true, true)
}

// overhead is the outer header's length.
func overhead(outer6 bool) int {
	if outer6 {
		return 40
	}
	return 20
}

// toldMTU returns the MTU in an ICMP error to the client, which must be "too big".
func toldMTU(t *testing.T, e *packet.Packet) int {
	t.Helper()
	b := e.Buf[e.L4:]
	if e.EtherType == packet.EtherIPv6 {
		if b[0] != 2 || b[1] != 0 {
			t.Fatalf("ICMPv6 %d/%d, want 2/0", b[0], b[1])
		}
		return int(binary.BigEndian.Uint32(b[4:]))
	}
	if b[0] != 3 || b[1] != 4 || b[4] != 0 || b[5] != 0 {
		t.Fatalf("ICMP %d/%d with %x, want 3/4 and an MTU", b[0], b[1], b[4:8])
	}
	return int(binary.BigEndian.Uint16(b[6:]))
}

// A router's word about a tunnel packet becomes one for the client: the first
// error speaks of the MTU that held until now, as the kernel's does, and the next
// packet that is too big is told the new one.
func TestPathMTUOfATunnelReachesTheClient(t *testing.T) {
	families(func(name string, inner6, outer6 bool) {
		t.Run(name, func(t *testing.T) {
			w, from, sent := tunnelWorld(t, inner6, outer6)
			virtual := vip
			if inner6 {
				virtual = vip6
			}
			kind, code := byte(3), byte(4)
			if outer6 {
				kind, code = 2, 0
			}
			o := overhead(outer6)
			e := one(t, w.in(serverLink, aboutTunnel(kind, code, 1400, sent[:min(len(sent), 500)])))
			if got := toldMTU(t, e); got != 1500-o {
				t.Errorf("the client is told %d, want %d", got, 1500-o)
			}
			q := quoteOf(t, e)
			if e.Flow.Src != addr(virtual) || q.Flow.Dst != addr(virtual) || q.Flow.SrcPort != 4000 || q.Flow.DstPort != 80 {
				t.Errorf("%v quoting %v, want from the VIP about the client's packet", e.Flow, q.Flow)
			}
			if got := e.Buf[q.L3:q.End]; !bytes.Equal(got, sent[o:][:len(got)]) || len(got) < 48 {
				t.Errorf("quotes %d bytes, want as much as came, unchanged", len(got))
			}
			w.wantVerdict(dataplane.TunnelError, 1)

			largest := 1400 - o
			if got := toldMTU(t, one(t, w.in(clientLink, w.datagram(from, virtual, largest+1)))); got != largest {
				t.Errorf("later the client is told %d, want %d", got, largest)
			}
			if p := one(t, w.in(clientLink, w.datagram(from, virtual, largest))); p.Link != serverLink || p.Len() != 1400 {
				t.Errorf("a packet of %d left by link %d with %d bytes", largest, p.Link, p.Len())
			}
		})
	})
}

// Errors other than about size: the type and code stay within one IP version.
func TestErrorsAboutATunnelReachTheClient(t *testing.T) {
	for _, c := range []struct {
		inner6, outer6     bool
		kind, code         byte
		wantKind, wantCode byte
	}{
		{false, false, 3, 1, 3, 1},
		{false, false, 3, 2, 3, 2},
		{false, false, 11, 0, 11, 0},
		{true, false, 3, 1, 1, 3},
		{true, false, 11, 0, 3, 0},
		{true, true, 1, 0, 1, 0},
		{true, true, 3, 0, 3, 0},
		{true, true, 4, 1, 1, 3},
		{false, true, 1, 3, 3, 1},
		{false, true, 3, 0, 11, 0},
		{false, true, 4, 1, 3, 1},
	} {
		t.Run(fmt.Sprintf("inner IPv6 %v, outer IPv6 %v, %d/%d", c.inner6, c.outer6, c.kind, c.code), func(t *testing.T) {
			w, _, sent := tunnelWorld(t, c.inner6, c.outer6)
			e := one(t, w.in(serverLink, aboutTunnel(c.kind, c.code, 0, sent[:200])))
			if b := e.Buf[e.L4:]; b[0] != c.wantKind || b[1] != c.wantCode {
				t.Errorf("%d/%d, want %d/%d", b[0], b[1], c.wantKind, c.wantCode)
			}
		})
	}
}

// What the client is not told.
func TestErrorsAboutATunnelThatStayHere(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world, sent []byte) *packet.Packet
		want   dataplane.Verdict
	}{
		{"8 bytes of the outer payload", func(_ *world, sent []byte) *packet.Packet { return aboutTunnel(3, 4, 1300, sent[:28]) }, dataplane.TunnelError},
		{"no ports", func(_ *world, sent []byte) *packet.Packet { return aboutTunnel(3, 4, 1300, sent[:43]) }, dataplane.TunnelError},
		{"inner packet without don't-fragment", func(_ *world, sent []byte) *packet.Packet {
			sent[26] = 0
			return aboutTunnel(3, 4, 1300, sent[:200])
		}, dataplane.TunnelError},
		{"unknown connection, known server", func(_ *world, sent []byte) *packet.Packet {
			sent[41]++
			return aboutTunnel(3, 1, 0, sent[:200])
		}, dataplane.TunnelError},
		{"known connection, another server", func(_ *world, sent []byte) *packet.Packet {
			sent[19] = 77
			return aboutTunnel(3, 1, 0, sent[:200])
		}, dataplane.NotOurs},
		{"a tunnel of the host's own", func(_ *world, sent []byte) *packet.Packet {
			sent[19], sent[41] = 77, 1
			return aboutTunnel(3, 1, 0, sent[:200])
		}, dataplane.NotOurs},
		{"wrong checksum", func(_ *world, sent []byte) *packet.Packet {
			p := aboutTunnel(3, 1, 0, sent[:200])
			p.Bytes()[22] ^= 1
			return p
		}, dataplane.BadChecksum},
		{"cut short in the outer header", func(_ *world, sent []byte) *packet.Packet { return aboutTunnel(3, 1, 0, sent[:19]) }, dataplane.NotOurs},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, sent := tunnelWorld(t, false, false)
			if out := w.in(serverLink, c.change(w, slices.Clone(sent))); len(out) != 0 {
				t.Errorf("%v left", summaries(out))
			}
			w.wantVerdict(c.want, 1)
		})
	}
}

// A path MTU holds for ten minutes, is of one real server, believed down to a
// limit, and never raises what the link takes.
func TestPathMTUIsRemembered(t *testing.T) {
	w, from, sent := tunnelWorld(t, false, false)
	largest := func() int {
		n := 1500
		for ; n > 100; n-- { // the first that passes
			if out := w.in(clientLink, w.datagram(from, vip, n)); len(out) > 0 && out[0].Link == serverLink {
				break
			}
		}
		return n
	}
	say := func(mtu uint32) { w.in(serverLink, aboutTunnel(3, 4, mtu, sent[:28])) }
	for _, step := range []struct {
		said uint32
		want int
	}{{1400, 1380}, {1450, 1380}, {9000, 1380}, {1300, 1280}, {0, 532}, {68, 532}} {
		say(step.said)
		if got := largest(); got != step.want {
			t.Errorf("after a router said %d the largest packet is %d, want %d", step.said, got, step.want)
		}
	}
	for range 20 { // neighbours would be forgotten in one stretch
		w.after(25 * time.Second)
		w.learnAll()
	}
	w.after(99 * time.Second)
	w.learnAll()
	if got := largest(); got != 532 {
		t.Errorf("after 599 s the largest packet is %d, want still 532", got)
	}
	w.after(2 * time.Second)
	if got := largest(); got != 1480 {
		t.Errorf("after 601 s the largest packet is %d, want 1480", got)
	}
}

// learnAll makes the neighbours known anew.
func (w *world) learnAll() {
	w.d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr(client), MAC: clientMAC})
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1)), MAC: serverMAC(1)})
}

// However many real servers routers speak of, the memory of it is bounded, and
// what is too old makes room.
func TestPathMTUsAreBounded(t *testing.T) {
	const most = 1024
	w := newWorld(t)
	far := func(i int) packet.Addr {
		return packet.AddrFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	for i := range 2 * most {
		if n := w.d.LearnPathMTU(far(i), 1400, time.Second); n > most {
			t.Fatalf("%d path MTUs are remembered, want at most %d", n, most)
		}
	}
	if got := w.d.PathMTU(far(most-1), 2*time.Second); got != 1400 {
		t.Errorf("the last that had room is forgotten: %d", got)
	}
	if got := w.d.PathMTU(far(most), 2*time.Second); got != 1500 {
		t.Errorf("one too many is remembered: %d", got)
	}
	if n := w.d.LearnPathMTU(far(most-1), 1300, 2*time.Second); n != most || w.d.PathMTU(far(most-1), 3*time.Second) != 1300 {
		t.Errorf("when full, one that is known does not change: %d remembered", n)
	}
	if n := w.d.LearnPathMTU(far(7777), 1400, 700*time.Second); n != 1 {
		t.Errorf("after 700 s %d are remembered, want 1", n)
	}
}
