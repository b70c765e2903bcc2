package tun_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/lvs/lvstest"
	"pktdirector/modes/tun"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// ends are the director and the real server, and client and VIP, of each IP
// version.
var (
	outerEnds = map[int][2]string{4: {"10.2.0.254", "10.2.0.1"}, 6: {"2001:db8:2::254", "2001:db8:2::1"}}
	innerEnds = map[int][2]string{4: {"198.51.100.7:40000", "192.0.2.10:80"}, 6: {"[2001:db8:77::7]:40000", "[2001:db8:f::10]:80"}}
)

func conn(outer, inner int, t lvs.TunnelInfo) *conntrack.Conn {
	f := flow(inner)
	c := &conntrack.Conn{Client: f.Src, ClientPort: f.SrcPort, Virtual: f.Dst, VirtualPort: f.DstPort, Proto: packet.TCP,
		Dest: packet.MustParseAddr(outerEnds[outer][1]), DestPort: 80, Method: lvs.Tunnel}
	c.SetTunnel(t)
	return c
}

func flow(inner int) packet.Flow {
	if inner == 4 {
		return packet.Flow{Src: packet.MustParseAddr("198.51.100.7"), SrcPort: 40000, Dst: packet.MustParseAddr("192.0.2.10"), DstPort: 80, Proto: packet.TCP}
	}
	return packet.Flow{Src: packet.MustParseAddr("2001:db8:77::7"), SrcPort: 40000, Dst: packet.MustParseAddr("2001:db8:f::10"), DstPort: 80, Proto: packet.TCP}
}

// build makes a parsed packet of the client.
func build(t testing.TB, inner int, s packettest.Spec) *packet.Packet {
	t.Helper()
	s.Src, s.Dst = innerEnds[inner][0], innerEnds[inner][1]
	p := packettest.Build(t, s)
	if e := packet.Parse(p); e != packet.ParseOK {
		t.Fatalf("parse: %v", e)
	}
	return p
}

// wrapped is the slow reference: in with the headers in front that a tunnel of
// that kind has, serialized by gopacket. id and port are taken as they came out, as the
// director chooses them.
func wrapped(t testing.TB, in []byte, outer, inner int, k lvs.TunnelInfo, ttl, tos uint8, df bool, id uint16, port uint16) []byte {
	t.Helper()
	carried, ether := layers.IPProtocolIPv4, layers.EthernetTypeIPv4
	if inner == 6 {
		carried, ether = layers.IPProtocolIPv6, layers.EthernetTypeIPv6
	}
	proto := carried
	var shim []gopacket.SerializableLayer
	switch k.Type {
	case lvs.GRE:
		proto = layers.IPProtocolGRE
		shim = append(shim, &layers.GRE{Protocol: ether, ChecksumPresent: k.Checksum != lvs.NoChecksum})
	case lvs.GUE:
		proto = layers.IPProtocolUDP
		shim = append(shim, &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: layers.UDPPort(k.Port)}, gopacket.Payload([]byte{0, byte(carried), 0, 0}))
	}
	var ip gopacket.NetworkLayer
	src, dst := net.ParseIP(outerEnds[outer][0]), net.ParseIP(outerEnds[outer][1])
	if outer == 4 {
		l := &layers.IPv4{Version: 4, TTL: ttl, TOS: tos, Id: id, Protocol: proto, SrcIP: src, DstIP: dst}
		if df {
			l.Flags = layers.IPv4DontFragment
		}
		ip = l
	} else {
		ip = &layers.IPv6{Version: 6, HopLimit: ttl, TrafficClass: tos, NextHeader: proto, SrcIP: src, DstIP: dst}
	}
	all := append([]gopacket.SerializableLayer{ip.(gopacket.SerializableLayer)}, shim...)
	if len(shim) > 0 {
		if u, ok := shim[0].(*layers.UDP); ok {
			if err := u.SetNetworkLayerForChecksum(ip); err != nil {
				t.Fatal(err)
			}
		}
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append(all, gopacket.Payload(in))...); err != nil {
		t.Fatal(err)
	}
	b := buf.Bytes()
	if k.Type == lvs.GUE && k.Checksum == lvs.NoChecksum {
		copy(b[ipLen(outer)+6:], []byte{0, 0})
	}
	return b
}

func ipLen(version int) int { return map[int]int{4: 20, 6: 40}[version] }

// each runs a test for every kind of tunnel and all four pairs of IP versions.
func each(t *testing.T, f func(t *testing.T, outer, inner int, k lvs.TunnelInfo)) {
	for name, k := range lvstest.Tunnels() {
		for _, outer := range []int{4, 6} {
			for _, inner := range []int{4, 6} {
				t.Run(fmt.Sprintf("%s %din%d", name, inner, outer), func(t *testing.T) { f(t, outer, inner, k) })
			}
		}
	}
}

func TestHeadersEqualThoseBuiltFromScratch(t *testing.T) {
	each(t, func(t *testing.T, outer, inner int, k lvs.TunnelInfo) {
		f := tun.New(7)
		c := conn(outer, inner, k)
		director := packet.MustParseAddr(outerEnds[outer][0])
		var ids []uint16
		for name, s := range map[string]packettest.Spec{
			"a SYN":                    {Flags: packet.SYN},
			"an odd length":            {Flags: packet.ACK, Payload: []byte("hello")},
			"TOS 0xb9, TTL 8":          {Flags: packet.ACK, TOS: 0xb9, TTL: 8},
			"congestion experienced":   {Flags: packet.ACK, TOS: 0x03},
			"may be fragmented":        {Flags: packet.ACK, NoDF: true, ID: 9},
			"an unfinished checksum":   {Flags: packet.ACK, Payload: []byte("hello!!"), Partial: true},
			"large":                    {Flags: packet.ACK, Payload: bytes.Repeat([]byte("m"), 1400)},
			"UDP":                      {UDP: true, Payload: []byte("x")},
			"UDP, unfinished checksum": {UDP: true, Payload: []byte("xyz"), Partial: true},
		} {
			p := build(t, inner, s)
			if !f.Forward(p, c, conntrack.Request, director) {
				t.Fatalf("%s: refused", name)
			}
			if p.CsumPartial != (s.Partial && (k.Type == lvs.IPIP || k.Checksum == lvs.NoChecksum)) {
				t.Errorf("%s: unfinished checksum: %v", name, p.CsumPartial)
			}
			packet.FinishChecksum(p)
			got := p.Bytes()
			if want := f.Overhead(c); p.L3-p.Start != want {
				t.Errorf("%s: %d bytes in front, Overhead says %d", name, p.L3-p.Start, want)
			}
			in := packettest.Build(t, packettest.Spec{Src: innerEnds[inner][0], Dst: innerEnds[inner][1],
				Flags: s.Flags, UDP: s.UDP, TOS: s.TOS, TTL: s.TTL, NoDF: s.NoDF, ID: s.ID, Payload: s.Payload})
			ttl, tos := s.TTL, s.TOS
			if ttl == 0 {
				ttl = 64
			}
			if tos == 3 {
				tos = 2
			}
			df := inner == 4 && !s.NoDF
			var id, port uint16
			if outer == 4 && !df {
				id = binary.BigEndian.Uint16(got[4:])
				ids = append(ids, id)
			}
			if k.Type == lvs.GUE {
				port = binary.BigEndian.Uint16(got[ipLen(outer):])
				if port < 32768 || port > 60999 {
					t.Errorf("%s: source port %d", name, port)
				}
			}
			want := wrapped(t, in.Bytes(), outer, inner, k, ttl, tos, df, id, port)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		for i := 1; i < len(ids); i++ {
			if ids[i] != ids[i-1]+1 {
				t.Errorf("ids of packets that may be fragmented: %v, want one after the other", ids)
			}
		}
	})
}

// TestSuperFrames cuts a tunnelled super-frame and holds every segment against
// one built from scratch.
func TestSuperFrames(t *testing.T) {
	const size, payload = 1001, 5000 // odd, so that a wrong parity shows
	data := make([]byte, payload)
	for i := range data {
		data[i] = byte(i * 7)
	}
	each(t, func(t *testing.T, outer, inner int, k lvs.TunnelInfo) {
		for _, noDF := range []bool{false, true} {
			for _, udp := range []bool{false, true} {
				f := tun.New(7)
				p := build(t, inner, packettest.Spec{UDP: udp, Flags: packet.ACK | packet.PSH, Seq: 77, ID: 5, NoDF: noDF, Payload: data, GSOSize: size})
				if !f.Forward(p, conn(outer, inner, k), conntrack.Request, packet.MustParseAddr(outerEnds[outer][0])) {
					t.Fatal("refused")
				}
				var s packet.Segmenter
				if err := s.Reset(p); err != nil {
					t.Fatal(err)
				}
				if s.Len() != 5 {
					t.Fatalf("%d segments, want 5", s.Len())
				}
				var buf [packet.MaxSegmentHeader]byte
				firstID := binary.BigEndian.Uint16(p.Buf[p.Start+4:])
				for n := range s.Len() {
					header, body := s.Next(buf[:])
					got := append(bytes.Clone(header), body...)
					flags := packet.ACK
					if n == s.Len()-1 {
						flags |= packet.PSH
					}
					in := packettest.Build(t, packettest.Spec{Src: innerEnds[inner][0], Dst: innerEnds[inner][1], UDP: udp, Flags: flags,
						Seq: 77 + uint32(n*size), ID: 5 + uint16(n), NoDF: noDF, Payload: data[n*size : min((n+1)*size, payload)]})
					df := inner == 4 && !noDF
					var id, port uint16
					if outer == 4 && !df {
						id = firstID + uint16(n)
					}
					if k.Type == lvs.GUE {
						port = binary.BigEndian.Uint16(got[ipLen(outer):])
					}
					want := wrapped(t, in.Bytes(), outer, inner, k, 64, 0, df, id, port)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("no DF %v, UDP %v, segment %d (-want +got):\n%s", noDF, udp, n, diff)
					}
				}
				// The next packet's id must not be one of a segment.
				next := build(t, inner, packettest.Spec{Flags: packet.ACK, NoDF: true})
				f.Forward(next, conn(outer, inner, k), conntrack.Request, packet.MustParseAddr(outerEnds[outer][0]))
				if id := binary.BigEndian.Uint16(next.Buf[next.Start+4:]); outer == 4 && noDF && id-firstID < 5 {
					t.Errorf("id %d after a super-frame with ids from %d", id, firstID)
				}
			}
		}
	})
}

// The source port of GUE belongs to the connection: one for all its packets,
// and spread over connections.
func TestSourcePortsOfGUE(t *testing.T) {
	f := tun.New(7)
	k := lvs.TunnelInfo{Type: lvs.GUE, Port: 6080}
	seen := map[uint16]int{}
	for i := range 1000 {
		c := conn(4, 4, k)
		c.ClientPort = uint16(1024 + i)
		var ports []uint16
		for _, s := range []packettest.Spec{{Flags: packet.SYN}, {Flags: packet.ACK, TOS: 9, Payload: []byte("data")}} {
			p := build(t, 4, s)
			f.Forward(p, c, conntrack.Request, packet.MustParseAddr(outerEnds[4][0]))
			ports = append(ports, binary.BigEndian.Uint16(p.Buf[p.Start+20:]))
		}
		if ports[0] != ports[1] {
			t.Fatalf("two packets of one connection left from ports %v", ports)
		}
		seen[ports[0]]++
	}
	// 1,000 draws of 28,232 ports collide about 17 times.
	if len(seen) < 950 {
		t.Errorf("1,000 connections share %d source ports", len(seen))
	}
}

func TestForwardRefuses(t *testing.T) {
	f := tun.New(7)
	for name, tt := range map[string]struct {
		director string
		headroom int
	}{
		"no address of the director":      {"", packet.Headroom},
		"an address of another version":   {"2001:db8:2::254", packet.Headroom},
		"no headroom for all the headers": {"10.2.0.254", 31},
	} {
		p := build(t, 4, packettest.Spec{Flags: packet.SYN})
		p.Buf = p.Buf[p.Start-tt.headroom:]
		shift := p.Start - tt.headroom
		p.Start, p.End, p.L3, p.L4 = p.Start-shift, p.End-shift, p.L3-shift, p.L4-shift
		var director packet.Addr
		if tt.director != "" {
			director = packet.MustParseAddr(tt.director)
		}
		before := strings.Clone(string(p.Bytes()))
		if f.Forward(p, conn(4, 4, lvs.TunnelInfo{Type: lvs.GUE, Port: 6080}), conntrack.Request, director) || string(p.Bytes()) != before {
			t.Errorf("%s: forwarded or changed", name)
		}
	}
}

func TestForwardAllocatesNothing(t *testing.T) {
	each(t, func(t *testing.T, outer, inner int, k lvs.TunnelInfo) {
		f, c, director := tun.New(7), conn(outer, inner, k), packet.MustParseAddr(outerEnds[outer][0])
		p := build(t, inner, packettest.Spec{Flags: packet.ACK, Payload: make([]byte, 1000)})
		start, kind := p.Start, p.EtherType
		if n := testing.AllocsPerRun(100, func() {
			p.Start, p.EtherType = start, kind
			if !f.Forward(p, c, conntrack.Request, director) {
				t.Fatal("refused")
			}
		}); n != 0 {
			t.Errorf("%v allocations a packet", n)
		}
	})
}

func BenchmarkForward(b *testing.B) {
	for name, k := range lvstest.Tunnels() {
		b.Run(name, func(b *testing.B) {
			f, c, director := tun.New(7), conn(4, 4, k), packet.MustParseAddr(outerEnds[4][0])
			p := build(b, 4, packettest.Spec{Flags: packet.ACK, Payload: make([]byte, 1400)})
			start := p.Start
			b.ReportAllocs()
			for b.Loop() {
				p.Start = start
				f.Forward(p, c, conntrack.Request, director)
			}
		})
	}
}
