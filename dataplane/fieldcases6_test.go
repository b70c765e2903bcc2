package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// What people saw with IPv6 services, and what IPv6 does differently: no
// header checksum, an MTU of 1280 that is never gone below, ICMPv6.

const client6 = "2001:db8:1::10"

// service6 is service for IPv6.
func service6(scheduler string, m lvs.Method, n int) lvs.VirtualService {
	s := service(scheduler, m, n)
	s.VIP = addr(vip6)
	for i := range s.Servers {
		s.Servers[i].RIP = addr(rip6(i + 1))
	}
	return s
}

// segment6 builds a client's segment to the IPv6 service; s names what is not
// plain.
func segment6(t testing.TB, s packettest.Spec) *packet.Packet {
	t.Helper()
	s.Src, s.Dst, s.Seq = "["+client6+"]:40000", "["+vip6+"]:80", 1000
	return packettest.Build(t, s)
}

// icmp6 expects an ICMPv6 error to the client from the VIP and returns its
// fields.
func icmp6(t *testing.T, e *packet.Packet) (kind, code byte, mtu uint32, quoted []byte) {
	t.Helper()
	if e.Flow.Proto != packet.ICMPv6 || e.Flow.Src != addr(vip6) || e.Flow.Dst != addr(client6) || e.Link != clientLink || e.DstMAC != clientMAC {
		t.Fatalf("%v left by link %d to %v, want ICMPv6 from the VIP to the client", e.Flow, e.Link, e.DstMAC)
	}
	if hop := e.Bytes()[7]; hop != 64 {
		t.Errorf("the error has hop limit %d, want 64", hop)
	}
	b := e.Buf[e.L4:e.End]
	return b[0], b[1], binary.BigEndian.Uint32(b[4:]), b[8:]
}

func TestHopLimitIsUsedUpByTheDirector(t *testing.T) {
	for _, m := range methods() {
		t.Run(m.Short(), func(t *testing.T) {
			w := newWorld(t, service6("rr", m, 1))
			p := segment6(t, packettest.Spec{Flags: packet.SYN, TTL: 1})
			sent := bytes.Clone(p.Bytes())
			kind, code, unused, quoted := icmp6(t, one(t, w.in(clientLink, p)))
			if kind != 3 || code != 0 || unused != 0 {
				t.Errorf("ICMPv6 %d/%d with %d, want 3/0 and 0", kind, code, unused)
			}
			if !bytes.Equal(quoted, sent) {
				t.Errorf("quotes\n%x\nwant what was sent\n%x", quoted, sent)
			}
			w.wantVerdict(dataplane.TTLExceeded, 1)
			w.wantVerdict(dataplane.Forwarded, 0)

			out := one(t, w.in(clientLink, segment6(t, packettest.Spec{Flags: packet.SYN, TTL: 2})))
			if hop := out.Buf[out.L3+7]; hop != 1 {
				t.Errorf("hop limit 2 left as %d, want 1", hop)
			}
		})
	}
}

// A reply whose hop limit is used up is the real server's to hear of, from the
// director's own address there.
func TestHopLimitOfAReply(t *testing.T) {
	w := newWorld(t, service6("rr", lvs.Masq, 1))
	one(t, w.in(clientLink, segment6(t, packettest.Spec{Flags: packet.SYN})))
	reply := packettest.Spec{Src: "[" + rip6(1) + "]:8080", Dst: "[" + client6 + "]:40000", Flags: packet.SYN | packet.ACK, TTL: 1}
	e := one(t, w.in(serverLink, packettest.Build(t, reply)))
	if b := e.Buf[e.L4:]; b[0] != 3 || b[1] != 0 || e.Flow.Src != addr("2001:db8:2::fe") || e.Flow.Dst != addr(rip6(1)) || e.DstMAC != serverMAC(1) {
		t.Errorf("ICMPv6 %d/%d, %v to %v", b[0], b[1], e.Flow, e.DstMAC)
	}
	reply.TTL = 2
	if out := one(t, w.in(serverLink, packettest.Build(t, reply))); out.Bytes()[7] != 1 || out.Flow.Src != addr(vip6) {
		t.Errorf("hop limit 2 left as %d from %v", out.Bytes()[7], out.Flow.Src)
	}
}

func TestDirectRoutingIPv6ChangesOnlyMACAndHopLimit(t *testing.T) {
	w := newWorld(t, service6("rr", lvs.Route, 1))
	p := segment6(t, packettest.Spec{Flags: packet.SYN, TOS: 0xb8, Payload: []byte("early")})
	want := bytes.Clone(p.Bytes())
	want[7] = 63
	out := one(t, w.in(clientLink, p))
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("left as\n%x\nwant\n%x", out.Bytes(), want)
	}
	if out.EtherType != packet.EtherIPv6 || out.DstMAC != serverMAC(1) || out.Link != serverLink {
		t.Errorf("type %#x to %v by link %d", out.EtherType, out.DstMAC, out.Link)
	}
	w.wantVerdict(dataplane.Forwarded, 1)
}

// The outer header of IPv6 in IPv6, byte by byte (RFC 2473 section 5.1).
func TestOuterHeaderIPv6(t *testing.T) {
	for _, c := range []struct {
		name         string
		class, outer byte
	}{
		{"a plain packet", 0, 0},
		{"the traffic class is copied", 0xb8, 0xb8},
		{"a class that spans both its bytes", 0x5a, 0x5a},
		{"congestion experienced is not copied", 0x47, 0x46},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, service6("rr", lvs.Tunnel, 1))
			p := segment6(t, packettest.Spec{Flags: packet.SYN, TTL: 17, TOS: c.class, Payload: []byte("early")})
			inner := bytes.Clone(p.Bytes())
			inner[7] = 16
			want := []byte{0x60 | c.outer>>4, c.outer << 4, 0, 0, byte(len(inner) >> 8), byte(len(inner)), 41, 16}
			want = append(want, make([]byte, 32)...)
			addr("2001:db8:2::fe").Put16(want[8:])
			addr(rip6(1)).Put16(want[24:])
			out := one(t, w.in(clientLink, p))
			if got := out.Bytes(); !bytes.Equal(got[:40], want) || !bytes.Equal(got[40:], inner) {
				t.Errorf("left as\n%x\n%x\nwant\n%x\n%x", got[:40], got[40:], want, inner)
			}
			if out.EtherType != packet.EtherIPv6 || out.DstMAC != serverMAC(1) || out.Link != serverLink {
				t.Errorf("type %#x to %v by link %d", out.EtherType, out.DstMAC, out.Link)
			}
		})
	}
}

// The sender is told the size of packet that passes: without the outer header,
// and never less than its protocol's smallest MTU.
func TestPacketTooBig(t *testing.T) {
	for _, c := range []struct {
		name    string
		method  lvs.Method
		mtu     int    // towards the real server
		largest int    // packet that passes
		told    uint32 // MTU
	}{
		{"IPv6 in IPv6 over 1500", lvs.Tunnel, 1500, 1460, 1460},
		{"IPv6 in IPv6 over a jumbo link", lvs.Tunnel, 9000, 8960, 8960},
		{"IPv6 in IPv6 over 1320, just enough", lvs.Tunnel, 1320, 1280, 1280},
		{"IPv6 in IPv6 over 1300: never below 1280", lvs.Tunnel, 1300, 1260, 1280},
		{"masquerading over 1400", lvs.Masq, 1400, 1400, 1400},
		{"direct routing over 1400", lvs.Route, 1400, 1400, 1400},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, service6("rr", c.method, 1))
			w.d.SetLinks([]dataplane.LinkInfo{
				{Name: "front", MAC: directorMAC[0], MTU: 9000},
				{Name: "back", MAC: directorMAC[1], MTU: c.mtu},
			})
			one(t, w.in(clientLink, segment6(t, packettest.Spec{Flags: packet.SYN})))
			segment := func(size int) *packet.Packet {
				return segment6(t, packettest.Spec{Flags: packet.ACK, Payload: make([]byte, size-60)})
			}
			big := segment(c.largest + 1)
			e := one(t, w.in(clientLink, big))
			kind, code, told, quoted := icmp6(t, e)
			if kind != 2 || code != 0 || told != c.told {
				t.Errorf("ICMPv6 %d/%d with MTU %d, want 2/0 and %d", kind, code, told, c.told)
			}
			// As much as fits the smallest MTU (RFC 4443 section 3.2), as it
			// stands after the director lowered the hop limit.
			if want := big.Buf[big.Start:min(big.End, big.Start+1280-48)]; !bytes.Equal(quoted, want) || e.Len() > 1280 {
				t.Errorf("the error has %d bytes and quotes %d, want %d", e.Len(), len(quoted), len(want))
			}
			w.wantVerdict(dataplane.TooBig, 1)
			out := one(t, w.in(clientLink, segment(c.largest)))
			if out.Len() > c.mtu || out.Link != serverLink {
				t.Errorf("the largest packet left with %d bytes by link %d", out.Len(), out.Link)
			}
			w.wantVerdict(dataplane.TooBig, 1)
		})
	}
}

// 68 is the smallest MTU of IPv4 (RFC 791 section 3.2).
func TestFragmentationNeededNeverBelow68(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Tunnel, 1))
	w.d.SetLinks(links(80))
	w.in(clientLink, w.syn("40000"))
	e := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, 60)})))
	if b := e.Buf[e.L4:]; b[0] != 3 || b[1] != 4 || !bytes.Equal(b[4:8], []byte{0, 0, 0, 68}) {
		t.Errorf("ICMP %d/%d with %x, want 3/4 and an MTU of 68", b[0], b[1], b[4:8])
	}
}
