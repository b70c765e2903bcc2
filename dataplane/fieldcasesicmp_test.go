package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// Field case 10, a and b: a full-size segment with don't-fragment does not
// vanish in a tunnel. Its sender is told what passes, and that passes.
func TestSendersOfFullSizeSegmentsAreToldWhatFitsATunnel(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Tunnel, 1))
	w.establish("40000")
	segment := func(size int) *packet.Packet {
		return packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, size-40)})
	}
	big := segment(1500)
	e := one(t, w.in(clientLink, big))
	if e.Flow.Src != addr(vip) || e.Flow.Dst != addr(client) || e.Link != clientLink {
		t.Errorf("%v by link %d, want from the VIP to the client", e.Flow, e.Link)
	}
	if got := toldMTU(t, e); got != 1480 {
		t.Errorf("MTU %d, want 1480", got)
	}
	if q := e.Buf[e.L4+8 : e.End]; len(q) < 28 || !bytes.Equal(q, big.Buf[big.Start:][:len(q)]) {
		t.Errorf("quotes %d bytes, want at least the IP header and 8 bytes of the segment", len(q))
	}
	p := one(t, w.in(clientLink, segment(1480))).Bytes()
	if len(p) != 1500 || p[9] != 4 || p[6]&0x40 == 0 {
		t.Errorf("a segment of 1480 left with %d bytes, protocol %d, flags %#x; want 1500, 4 and don't-fragment", len(p), p[9], p[6])
	}
}

// Field case 45: the MTU in an error counts the outer header, stands in network
// byte order where its protocol wants it, and is never below 68 or 1280.
func TestTheMTUInAnErrorCountsTheOuterHeader(t *testing.T) {
	for _, c := range []struct {
		name           string
		method         lvs.Method
		inner6, outer6 bool
		mtu            int
		want           []byte // the second word of the ICMP header
	}{
		{"IPv4 in IPv4", lvs.Tunnel, false, false, 1500, []byte{0, 0, 0x05, 0xc8}},
		{"IPv6 in IPv6", lvs.Tunnel, true, true, 1500, []byte{0, 0, 0x05, 0xb4}},
		{"IPv4 in IPv6", lvs.Tunnel, false, true, 1500, []byte{0, 0, 0x05, 0xb4}},
		{"IPv6 in IPv4", lvs.Tunnel, true, false, 1500, []byte{0, 0, 0x05, 0xc8}},
		{"IPv6 in IPv6, 1300: 1280 and never 1260", lvs.Tunnel, true, true, 1300, []byte{0, 0, 0x05, 0x00}},
		{"IPv4, masquerading, 576", lvs.Masq, false, false, 576, []byte{0, 0, 0x02, 0x40}},
		{"IPv6, direct routing, 1400", lvs.Route, true, true, 1400, []byte{0, 0, 0x05, 0x78}},
		{"IPv4 in IPv4, 80: never below 68", lvs.Tunnel, false, false, 80, []byte{0, 0, 0, 68}},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, virtual, server := client+":4000", vip, rip(1)
			if c.inner6 {
				from, virtual = "[2001:db8:1::10]:4000", vip6
			}
			if c.outer6 {
				server = rip6(1)
			}
			w := newWorld(t, lvs.VirtualService{
				ServiceKey: lvs.ServiceKey{Proto: packet.UDP, VIP: addr(virtual), Port: 80}, Scheduler: "rr",
				Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr(server), Port: 80}, Method: c.method, Weight: 1}},
			})
			w.d.SetLinks(links(c.mtu))
			e := one(t, w.in(clientLink, w.datagram(from, virtual, 1500)))
			if e.Flow.Src != addr(virtual) {
				t.Errorf("from %v, want the VIP", e.Flow.Src)
			}
			toldMTU(t, e)
			if got := e.Buf[e.L4+4 : e.L4+8]; !bytes.Equal(got, c.want) {
				t.Errorf("%x, want %x", got, c.want)
			}
		})
	}
}

// Field case 36: timers are exact; a segment that comes too late is answered by
// one reset and reaches no server; --set lengthens established connections only.
func TestIdleConnectionsEndToTheSecond(t *testing.T) {
	for _, m := range methods() {
		for _, c := range []struct {
			name   string
			set    time.Duration
			silent time.Duration
			alive  bool
		}{
			{"899 s", 0, 899 * time.Second, true},
			{"901 s", 0, 901 * time.Second, false},
			{"7199 s after --set 7200 0 0", 7200 * time.Second, 7199 * time.Second, true},
			{"7201 s after --set 7200 0 0", 7200 * time.Second, 7201 * time.Second, false},
		} {
			t.Run(fmt.Sprintf("%s, silent for %s", m.Short(), c.name), func(t *testing.T) {
				w := newWorld(t, service("rr", m, 1))
				w.d.SetTimeouts(c.set, 0, 0)
				w.establish("40000")
				left := func() (d time.Duration) {
					w.d.Conns(func(s dataplane.ConnStatus) bool { d = s.Expires - w.now; return true })
					return d
				}
				full := max(c.set, 900*time.Second)
				if got := left(); got != full {
					t.Fatalf("established, it ends in %v, want %v", got, full)
				}
				w.after(c.silent)
				w.d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr(client), MAC: clientMAC})
				w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1)), MAC: serverMAC(1)})
				p := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK | packet.PSH, Seq: 1001, Ack: 4711, Payload: []byte("SELECT 1")})))
				if c.alive {
					if p.Link != serverLink || left() != full {
						t.Errorf("left by link %d; the entry ends in %v, want %v again", p.Link, left(), full)
					}
					w.wantVerdict(dataplane.NoConnection, 0)
					return
				}
				if left() != 0 {
					t.Errorf("an entry remains, for %v", left())
				}
				b := p.Buf[p.L4:]
				if p.Link != clientLink || b[13] != packet.RST || binary.BigEndian.Uint32(b[4:]) != 4711 {
					t.Errorf("flags %#x, seq %d by link %d; want one reset to the client with its own ack as seq", b[13], binary.BigEndian.Uint32(b[4:]), p.Link)
				}
				w.wantVerdict(dataplane.NoConnection, 1)
			})
		}
	}
}

// Field case 36: --set 7200 0 0 changes neither the time after a FIN nor that of
// a connection that was never established.
func TestSetChangesOneTimeoutOnly(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	w.d.SetTimeouts(7200*time.Second, 0, 0)
	for _, c := range []struct {
		flags uint8
		want  time.Duration
	}{{packet.SYN, 60 * time.Second}, {packet.ACK, 7200 * time.Second}, {packet.FIN | packet.ACK, 120 * time.Second}} {
		one(t, w.in(clientLink, w.segment("40000", c.flags)))
		w.d.Conns(func(s dataplane.ConnStatus) bool {
			if got := s.Expires - w.now; got != c.want {
				t.Errorf("flags %#x: it ends in %v, want %v", c.flags, got, c.want)
			}
			return true
		})
	}
}
