package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// The tests of this file come from an attack on a running director.

// ping is an echo request to the VIP.
func ping(t testing.TB, from string) *packet.Packet {
	p := packettest.Build(t, packettest.Spec{Src: from + ":0", Dst: vip + ":0", UDP: true, Payload: make([]byte, 56)})
	ip := p.Bytes()
	ip[9] = 1
	packet.PutIPv4Checksum(ip[:20])
	copy(ip[20:28], []byte{8, 0, 0, 0, 1, 2, 3, 4})
	binary.BigEndian.PutUint16(ip[22:], ^packet.Fold(packet.Sum(ip[20:], 0)))
	return p
}

// wide is a world whose client net is a /8, so that strangers on it can have
// many addresses.
func wide(t *testing.T, services ...lvs.VirtualService) *world {
	w := newWorld(t, services...)
	w.d.SetHost(dataplane.HostTable{Routes: []dataplane.Route{
		{Dst: mustPrefix("10.0.0.0/8"), Link: clientLink}, {Dst: mustPrefix("198.51.100.0/24"), Link: clientLink}, {Dst: mustPrefix("192.0.2.0/24"), Link: serverLink},
	}})
	return w
}

// Pings from addresses that nobody has must not cost a real server its place,
// and a real server that has to be asked for is asked for and found meanwhile.
func TestPingsFromNobodyDoNoHarm(t *testing.T) {
	w := wide(t, service("rr", lvs.Masq, 2))
	for port := range 4 {
		w.establish(fmt.Sprint(30000 + port))
	}
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(2))}) // the host lost it
	asked := 0
	for i := range 20000 {
		w.now += 50 * time.Microsecond
		for _, p := range w.in(clientLink, ping(t, fmt.Sprintf("10.%d.%d.7", i>>8, i&255))) {
			if isRequestFor(p, rip(2)) {
				asked++
			}
		}
		if i == 15000 { // in the middle of it, a new connection for each server
			out := append(w.in(clientLink, w.syn("40000")), w.in(clientLink, w.syn("40001"))...)
			served := 0
			for _, p := range out {
				if isRequestFor(p, rip(2)) {
					asked++
				} else if p.EtherType == packet.EtherIPv4 && p.DstMAC == serverMAC(1) {
					served++
				}
			}
			if served != 1 || asked != 1 {
				t.Fatalf("in the flood %d SYNs reached server 1 and %d requests for server 2 left, want 1 and 1: %v", served, asked, summaries(out))
			}
			if out := w.in(serverLink, arpPacket(2, serverMAC(2), rip(2), "192.0.2.254")); len(out) != 1 || out[0].DstMAC != serverMAC(2) {
				t.Fatalf("server 2 answered, and %d packets left", len(out))
			}
		}
	}
	for port := range 4 {
		if out := w.in(clientLink, w.segment(fmt.Sprint(30000+port), packet.ACK)); len(out) != 1 || out[0].EtherType != packet.EtherIPv4 {
			t.Errorf("after the flood connection %d is not forwarded: %v", port, summaries(out))
		}
	}
}

// However many machines the director has heard of, a real server finds room.
func TestAFullNeighbourTableHasRoomForServers(t *testing.T) {
	w := wide(t, service("rr", lvs.Route, 1))
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1))})
	for i := range 20000 {
		w.in(clientLink, arpPacket(1, clientMAC, fmt.Sprintf("10.%d.%d.7", i>>8, i&255), vip))
	}
	if out := w.in(clientLink, w.syn("40000")); len(out) != 1 || !isRequestFor(out[0], rip(1)) {
		t.Fatalf("the server is not asked for: %v", summaries(out))
	}
	if out := w.in(serverLink, arpPacket(2, serverMAC(1), rip(1), "192.0.2.254")); len(out) != 1 || out[0].DstMAC != serverMAC(1) {
		t.Errorf("the SYN did not leave: %v", summaries(out))
	}
}

// Who asks for the VIP is about to talk to it, and need not be asked for.
func TestWhoAsksForTheVIPIsKnown(t *testing.T) {
	w := wide(t, service("rr", lvs.Route, 1))
	w.in(clientLink, arpPacket(1, packet.MAC{2, 5, 5, 5, 5, 5}, "10.1.2.3", vip))
	if out := w.in(clientLink, ping(t, "10.1.2.3")); len(out) != 1 || out[0].DstMAC != (packet.MAC{2, 5, 5, 5, 5, 5}) {
		t.Errorf("answered with %v", summaries(out))
	}
}

// What the operator set on the host stays: it is not asked for, and nobody
// overrides it.
func TestAPermanentNeighbourStays(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1)), MAC: serverMAC(1), Permanent: true})
	w.in(serverLink, arpPacket(2, packet.MAC{2, 6, 6, 6, 6, 6}, rip(1), rip(1)))
	for i := range 20 {
		out := append(w.after(30*time.Second), w.in(clientLink, w.syn(fmt.Sprint(40000+i)))...)
		if len(out) != 1 || out[0].DstMAC != serverMAC(1) {
			t.Fatalf("after %v: %v", w.now, summaries(out))
		}
	}
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1))}) // taken back
	if out := w.in(clientLink, w.syn("50000")); len(out) != 1 || !isRequestFor(out[0], rip(1)) {
		t.Errorf("after the operator took it back: %v", summaries(out))
	}
}

// A header cut short neither starts a connection nor moves one on.
func TestCutHeadersChangeNothing(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 1), udp(service("rr", lvs.Masq, 1)))
	w.establish("40000")
	cut := func(p *packet.Packet, n int) *packet.Packet {
		raw := append([]byte(nil), p.Bytes()[:20+n]...)
		binary.BigEndian.PutUint16(raw[2:], uint16(len(raw)))
		packet.PutIPv4Checksum(raw[:20])
		return packettest.Packet(raw, packet.EtherIPv4)
	}
	datagram := packettest.Build(t, packettest.Spec{Src: client + ":40001", Dst: vip + ":80", UDP: true})
	for name, p := range map[string]*packet.Packet{
		"4 bytes of TCP on a connection": cut(w.segment("40000", packet.RST), 4),
		"14 bytes of TCP with RST on it": cut(w.segment("40000", packet.RST), 14),
		"14 bytes of TCP with SYN":       cut(w.syn("40002"), 14),
		"4 bytes of UDP":                 cut(datagram, 4),
	} {
		if out := w.in(clientLink, p); len(out) != 0 {
			t.Errorf("%s: %v left", name, summaries(out))
		}
		n := 0
		w.d.Conns(func(c dataplane.ConnStatus) bool {
			n++
			if c.State != conntrack.Established {
				t.Errorf("%s: the connection is in %v", name, c.State)
			}
			return true
		})
		if n != 1 {
			t.Fatalf("%s: %d connections, want 1", name, n)
		}
	}
	w.wantVerdict(dataplane.ShortHeader, 4)
}

// IPv6 packets with IPv4-mapped addresses must not pass for IPv4.
func TestMappedAddressesAreRefused(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 1))
	p := packettest.Build(t, packettest.Spec{Src: "[2001:db8:1::10]:40000", Dst: "[" + vip6 + "]:80", Flags: packet.SYN})
	for at, a := range map[int]string{8: client, 24: vip} {
		addr(a).Put16(p.Bytes()[at:])
	}
	if out := w.in(clientLink, p); len(out) != 0 {
		t.Errorf("%v left", summaries(out))
	}
	w.wantVerdict(dataplane.Malformed, 1)
}

// Neighbour discovery with a wrong checksum or an impossible MAC is not heeded.
func TestDamagedNeighbourDiscoveryIsIgnored(t *testing.T) {
	for name, damage := range map[string]func(b []byte){
		"wrong checksum": func(b []byte) { b[42] ^= 0xff },
		"multicast MAC":  func(b []byte) { b[66] |= 1; sumICMPv6(b) },
		"zero MAC":       func(b []byte) { clear(b[66:72]); sumICMPv6(b) },
	} {
		w := newWorld(t, service("rr", lvs.Route, 1))
		b := make([]byte, 72)
		copy(b, []byte{0x60, 0, 0, 0, 0, 32, 58, 255})
		addr(rip6(1)).Put16(b[8:])
		addr("2001:db8:2::fe").Put16(b[24:])
		b[40] = 136
		addr(rip6(1)).Put16(b[48:])
		copy(b[64:], []byte{2, 1, 2, 7, 7, 7, 7, 7})
		sumICMPv6(b)
		damage(b)
		w.in(serverLink, packettest.Packet(b, packet.EtherIPv6))
		if n := w.d.Count(dataplane.Learned); n != 0 {
			t.Errorf("%s: heeded", name)
		}
	}
}
