package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// lively is a world with a live connection of every kind: each method, both IP
// versions, TCP and UDP, and tunnels of either version in either.
func lively(t testing.TB) (*world, []masqueraded) {
	var services []lvs.VirtualService
	var list []masqueraded
	var starts []*packet.Packet
	port := uint16(80)
	add := func(m lvs.Method, v6, udp, outer6 bool) {
		port++
		from, virtual, server := fmt.Sprintf("%s:%d", client, 40000+port), vip, rip(1)
		if v6 {
			from, virtual = fmt.Sprintf("[2001:db8:1::10]:%d", 40000+port), vip6
		}
		if v6 && m != lvs.Tunnel || outer6 {
			server = rip6(1)
		}
		rs := lvs.RealServer{ServerKey: lvs.ServerKey{RIP: addr(server), Port: port}, Method: m, Weight: 1}
		if m == lvs.Masq {
			rs.Port = port + 8000
		}
		proto := packet.TCP
		if udp {
			proto = packet.UDP
		}
		s := lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: proto, VIP: addr(virtual), Port: port}, Scheduler: "rr", Servers: []lvs.RealServer{rs}}
		services = append(services, s)
		to := packet.Endpoint(s.VIP, port)
		starts = append(starts, packettest.Build(t, packettest.Spec{Src: from, Dst: to, UDP: udp, Flags: packet.SYN, Payload: []byte("x")}))
		if m == lvs.Masq {
			list = append(list, masqueraded{proto, from, to, packet.Endpoint(rs.RIP, rs.Port)})
		}
	}
	for _, m := range methods() {
		for _, v6 := range []bool{false, true} {
			for _, udp := range []bool{false, true} {
				add(m, v6, udp, v6)
			}
		}
	}
	add(lvs.Tunnel, true, true, false)
	add(lvs.Tunnel, false, true, true)
	w := newWorld(t, services...)
	for _, p := range starts {
		one(t, w.in(clientLink, p))
	}
	return w, list
}

// repair makes lengths and checksums of a packet right, so that what a fuzzer
// changed reaches the code behind their checks.
func repair(raw []byte) {
	switch {
	case len(raw) >= 28 && raw[0] == 0x45:
		binary.BigEndian.PutUint16(raw[2:], uint16(len(raw)))
		packet.PutIPv4Checksum(raw[:20])
		if raw[9] == 1 {
			clear(raw[22:24])
			binary.BigEndian.PutUint16(raw[22:], ^packet.Fold(packet.Sum(raw[20:], 0)))
		}
	case len(raw) >= 48 && raw[0]>>4 == 6:
		binary.BigEndian.PutUint16(raw[4:], uint16(len(raw)-40))
		if raw[6] == 58 {
			clear(raw[42:44])
			sum := packet.PseudoSum(packet.AddrFrom16(raw[8:]), packet.AddrFrom16(raw[24:]), packet.ICMPv6, len(raw)-40)
			binary.BigEndian.PutUint16(raw[42:], ^packet.Fold(packet.Sum(raw[40:], sum)))
		}
	}
}

// FuzzICMPErrors: whatever comes as an ICMP error about live connections, nothing
// panics, each packet has one verdict, what leaves has right checksums, counts
// equal entries, and masqueraded connections' errors leave as the slow translator
// has them.
func FuzzICMPErrors(f *testing.F) {
	w, list := lively(f)
	seed := func(p *packet.Packet, link uint8) { f.Add(p.Bytes(), link, true, false) }
	for _, c := range list {
		udp := c.proto == packet.UDP
		client, virtual, server := hostOf(c.client), hostOf(c.virtual), hostOf(c.server)
		kind, code := byte(3), byte(4)
		if addr(client).Is4() {
			seed(icmpFrom("203.0.113.7", virtual, 11, 0, 0, quoted(f, c.virtual, c.client, udp, 20)), clientLink)
		} else {
			kind, code = 2, 0
		}
		seed(icmpFrom(client, virtual, kind, code, 1400, quoted(f, c.virtual, c.client, udp, 8)), clientLink)
		seed(icmpFrom(server, client, kind, code, 1400, quoted(f, c.client, c.server, udp, 8)), serverLink)
		seed(icmpFrom(server, client, kind, code, 1400, quoted(f, c.client, c.server, udp, 4)), serverLink)
	}
	w.d.Conns(func(c dataplane.ConnStatus) bool {
		from, to := packet.Endpoint(c.Client, c.ClientPort), packet.Endpoint(c.Virtual, c.VirtualPort)
		udp := c.Proto == packet.UDP
		kind, code := byte(3), byte(4)
		if !c.Client.Is4() {
			kind, code = 2, 0
		}
		seed(icmpFrom(c.Client.String(), c.Virtual.String(), kind, code, 1400, quoted(f, to, from, udp, 8)), clientLink)
		if c.Dest != addr(rip(1)) && c.Dest != addr(rip6(1)) {
			return true
		}
		w := w.w
		for _, p := range w.Process([]*packet.Packet{packettest.Build(f, packettest.Spec{Src: from, Dst: to, UDP: udp, Flags: packet.ACK})}, 0) {
			if b := p.Bytes(); p.Start != p.L3 {
				kind, code := byte(3), byte(4)
				if b[0]>>4 == 6 {
					kind, code = 2, 0
				}
				seed(aboutTunnel(kind, code, 1300, b), serverLink)
				seed(aboutTunnel(1, 1, 0, b[:min(len(b), 48)]), serverLink)
			}
		}
		return true
	})
	f.Add(ping(f, client).Bytes(), uint8(0), true, false)

	f.Fuzz(func(t *testing.T, raw []byte, link uint8, fix, schedule bool) {
		if len(raw) == 0 || len(raw) > 2000 {
			return
		}
		raw = bytes.Clone(raw)
		if fix {
			repair(raw)
		}
		w, list := lively(t)
		if schedule {
			if err := w.d.SetTunable("schedule_icmp", "1"); err != nil {
				t.Fatal(err)
			}
		}
		kind := packet.EtherIPv4
		if raw[0]>>4 == 6 {
			kind = packet.EtherIPv6
		}
		want := translate(raw, list)
		before := total(w.d)
		wrong := packettest.Verify(raw) != nil
		out := w.in(int(link%2), packettest.Packet(raw, kind))
		if n := total(w.d) - before; n > 1 {
			t.Fatalf("one packet has %d verdicts", n)
		}
		for _, p := range out {
			if p.EtherType == packet.EtherARP {
				continue // a neighbour is asked for
			}
			icmp := p.Flow.Proto == packet.ICMP || p.Flow.Proto == packet.ICMPv6
			if err := packettest.Verify(p.Bytes()); err != nil && (icmp || !wrong) {
				t.Errorf("%v left: %v", p.Flow, err)
			}
		}
		if w.d.Count(dataplane.ForgedSource) > 0 {
			want = nil // the translator knows nothing of impossible senders
		}
		if forwarded := w.d.Count(dataplane.ErrorForwarded) > 0; want != nil && !wrong && raw[ttlAt(raw)] > 1 && len(want) <= 1500 {
			if !forwarded || len(out) != 1 || !bytes.Equal(out[0].Bytes(), want) {
				t.Errorf("%d packets left: %v; the slow translator says\n%x", len(out), summaries(out), want)
				for _, p := range out {
					t.Errorf("got\n%x", p.Bytes())
				}
			}
		}
		checkCounts(t, w.d)
	})
}

func hostOf(s string) string {
	ip, _ := endpoint(s)
	return ip.String()
}

func ttlAt(raw []byte) int {
	if raw[0]>>4 == 6 {
		return 7
	}
	return 8
}

// total counts the packets that have a verdict.
func total(d *dataplane.Director) (n uint64) {
	for _, v := range d.Verdicts() {
		n += v.Count
	}
	return n
}

// checkCounts compares the destinations' counts with the entries of the table.
func checkCounts(t testing.TB, d *dataplane.Director) {
	t.Helper()
	var active, inactive, entries int64
	for _, s := range d.Status() {
		for _, dest := range s.Destinations {
			if dest.Active < 0 || dest.InAct < 0 {
				t.Errorf("%v: %d active, %d inactive", dest.Server, dest.Active, dest.InAct)
			}
			active, inactive = active+int64(dest.Active), inactive+int64(dest.InAct)
		}
	}
	d.Conns(func(dataplane.ConnStatus) bool { entries++; return true })
	if active+inactive != entries {
		t.Errorf("%d active and %d inactive connections, but %d entries", active, inactive, entries)
	}
}
