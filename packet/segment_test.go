package packet_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"pktdirector/packet"
)

// stack describes a packet as a list of gopacket layers, of which the
// segmenting tests build super-frames and, one by one, what they expect.
type stack struct {
	v6, udp    bool
	outer      string // "", "v4", "v4 df" or "v6"
	tcpOptions int    // bytes, multiple of 4
	ipOptions  int
	flags      uint8
	id         uint16
	payload    int
	size       int
}

func (s stack) String() string {
	return fmt.Sprintf("v6=%t udp=%t outer=%q options %d+%d flags %02x payload %d size %d",
		s.v6, s.udp, s.outer, s.ipOptions, s.tcpOptions, s.flags, s.payload, s.size)
}

const firstSeq = 0xfffffc00 // wraps within the super-frame

// build serializes segment n of the stack's data with gopacket, lengths and
// checksums computed from scratch. count is how many segments there are.
func (s stack) build(t testing.TB, n, count int, data []byte) []byte {
	t.Helper()
	src, dst := net.ParseIP("198.51.100.10"), net.ParseIP("203.0.113.80")
	if s.v6 {
		src, dst = net.ParseIP("2001:db8:1::10"), net.ParseIP("2001:db8::80")
	}
	proto := layers.IPProtocolTCP
	if s.udp {
		proto = layers.IPProtocolUDP
	}
	var ls []gopacket.SerializableLayer
	carried := layers.IPProtocolIPv4
	if s.v6 {
		carried = layers.IPProtocolIPv6
	}
	switch s.outer {
	case "v4":
		ls = append(ls, &layers.IPv4{Version: 4, TTL: 64, Id: 0xfffe + uint16(n), Protocol: carried,
			SrcIP: net.ParseIP("10.0.0.1"), DstIP: net.ParseIP("10.9.0.1")})
	case "v4 df":
		ls = append(ls, &layers.IPv4{Version: 4, TTL: 64, Protocol: carried, Flags: layers.IPv4DontFragment,
			SrcIP: net.ParseIP("10.0.0.1"), DstIP: net.ParseIP("10.9.0.1")})
	case "v6":
		ls = append(ls, &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: carried,
			SrcIP: net.ParseIP("2001:db8:f::1"), DstIP: net.ParseIP("2001:db8:f::2")})
	}
	var network gopacket.NetworkLayer
	if s.v6 {
		ip := &layers.IPv6{Version: 6, HopLimit: 63, NextHeader: proto, FlowLabel: 0x12345, SrcIP: src, DstIP: dst}
		network, ls = ip, append(ls, ip)
	} else {
		ip := &layers.IPv4{Version: 4, TTL: 63, Id: s.id + uint16(n), Protocol: proto, Flags: layers.IPv4DontFragment, SrcIP: src, DstIP: dst}
		for range s.ipOptions {
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 1})
		}
		network, ls = ip, append(ls, ip)
	}
	if s.udp {
		udp := &layers.UDP{SrcPort: 40000, DstPort: 53}
		udp.SetNetworkLayerForChecksum(network)
		ls = append(ls, udp)
	} else {
		flags := s.flags
		if n > 0 {
			flags &^= packet.CWR
		}
		if n < count-1 {
			flags &^= packet.FIN | packet.PSH
		}
		tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: firstSeq + uint32(n*s.size), Ack: 77, Window: 501,
			FIN: flags&packet.FIN != 0, SYN: flags&packet.SYN != 0, RST: flags&packet.RST != 0, PSH: flags&packet.PSH != 0,
			ACK: flags&packet.ACK != 0, URG: flags&packet.URG != 0, ECE: flags&packet.ECE != 0, CWR: flags&packet.CWR != 0}
		for range s.tcpOptions {
			tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop})
		}
		tcp.SetNetworkLayerForChecksum(network)
		ls = append(ls, tcp)
	}
	ls = append(ls, gopacket.Payload(data))
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
	return buf.Bytes()
}

// superFrame builds the stack's super-frame as a link would deliver it, the
// outer header pushed by the director.
func (s stack) superFrame(t testing.TB, data []byte, partial bool) *packet.Packet {
	t.Helper()
	inner := s
	inner.outer = ""
	b := inner.build(t, 0, 1, data)
	p := new(packet.Packet)
	p.Reset(append(make([]byte, packet.Headroom), b...), packet.Headroom, len(b))
	p.EtherType = packet.EtherIPv4
	if s.v6 {
		p.EtherType = packet.EtherIPv6
	}
	p.GSOSize = uint16(s.size)
	switch {
	case s.udp:
		p.GSO = packet.GSOUDP
	case s.v6:
		p.GSO = packet.GSOTCPv6
	default:
		p.GSO = packet.GSOTCPv4
	}
	if e := packet.Parse(p); e != packet.ParseOK {
		t.Fatalf("%v: super-frame does not parse: %v", s, e)
	}
	if partial {
		packet.DeferChecksum(p)
	}
	if s.outer != "" {
		whole := s.build(t, 0, 1, data)
		outer, ok := p.Push(len(whole) - len(b))
		if !ok {
			t.Fatal("no headroom for the outer header")
		}
		copy(outer, whole)
	}
	return p
}

func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// segments cuts p and returns the segments as whole packets.
func segments(t testing.TB, p *packet.Packet) [][]byte {
	t.Helper()
	var s packet.Segmenter
	if err := s.Reset(p); err != nil {
		t.Fatalf("Reset: %v", err)
	}
	var out [][]byte
	var buf [packet.MaxSegmentHeader]byte
	for {
		h, payload := s.Next(buf[:])
		if h == nil {
			break
		}
		out = append(out, append(bytes.Clone(h), payload...))
	}
	if len(out) != s.Len() {
		t.Errorf("%d segments, Len says %d", len(out), s.Len())
	}
	return out
}

func checkSegments(t testing.TB, s stack, partial bool) {
	t.Helper()
	data := randomBytes(uint64(s.payload), s.payload)
	got := segments(t, s.superFrame(t, data, partial))
	count := max(1, (s.payload+s.size-1)/s.size)
	if len(got) != count {
		t.Fatalf("%v: %d segments, want %d", s, len(got), count)
	}
	for n := range got {
		want := s.build(t, n, count, data[n*s.size:min((n+1)*s.size, len(data))])
		if diff := cmp.Diff(want, got[n]); diff != "" {
			t.Fatalf("%v: segment %d of %d differs from the one built from scratch (-want +got):\n%s", s, n, count, diff)
		}
	}
}

func TestSegmentsEqualPacketsBuiltFromScratch(t *testing.T) {
	ack := packet.ACK
	for name, s := range map[string]stack{
		"a merged upload of three full segments": {payload: 4344, size: 1448, tcpOptions: 12, flags: ack | packet.PSH},
		"largest":                                {payload: 65495, size: 1460, flags: ack},
		"last segment short":                     {payload: 3001, size: 1000, flags: ack | packet.PSH | packet.FIN},
		"odd segment size":                       {payload: 9999, size: 1337, flags: ack | packet.PSH},
		"shorter than a segment":                 {payload: 10, size: 1448, flags: ack | packet.PSH},
		"no payload":                             {payload: 0, size: 1448, flags: ack | packet.FIN},
		"CWR only in the first":                  {payload: 5000, size: 1448, flags: ack | packet.CWR | packet.ECE},
		"identification wraps":                   {payload: 5000, size: 1000, flags: ack, id: 0xfffe},
		"IPv4 and TCP options":                   {payload: 5000, size: 1400, flags: ack, ipOptions: 40, tcpOptions: 40},
		"IPv6":                                   {v6: true, payload: 5000, size: 1428, tcpOptions: 12, flags: ack | packet.PSH},
		"UDP over IPv4":                          {udp: true, payload: 5000, size: 1200},
		"UDP over IPv6":                          {udp: true, v6: true, payload: 5000, size: 1200},
		"IPIP, identifications count":            {outer: "v4", payload: 20000, size: 1428, tcpOptions: 12, flags: ack | packet.PSH},
		"IPIP, DF and no id":                     {outer: "v4 df", payload: 20000, size: 1428, tcpOptions: 12, flags: ack | packet.PSH},
		"IPIP, as large as it gets":              {outer: "v4", payload: 65483, size: 1428, tcpOptions: 12, flags: ack},
		"IPv6 in IPv4":                           {outer: "v4 df", v6: true, payload: 20000, size: 1408, flags: ack},
		"IPv4 in IPv6":                           {outer: "v6", payload: 20000, size: 1408, flags: ack},
		"IPv6 in IPv6, UDP":                      {outer: "v6", v6: true, udp: true, payload: 20000, size: 1400},
	} {
		t.Run(name, func(t *testing.T) {
			if s.outer == "v4" && s.payload > 65400 {
				// gopacket cannot build the outer header of more than 64 kB.
				t.Run("parses", func(t *testing.T) { checkLargest(t, s) })
				return
			}
			checkSegments(t, s, true)
			checkSegments(t, s, false)
		})
	}
}

// checkLargest cuts a super-frame whose outer length field cannot hold its
// length, and expects segments that hold theirs.
func checkLargest(t *testing.T, s stack) {
	data := randomBytes(1, s.payload)
	small := s
	small.payload = 100
	outer := small.build(t, 0, 1, data[:100])[:packet.IPv4HeaderLen]
	inner := s
	inner.outer = ""
	p := inner.superFrame(t, data, true)
	room, _ := p.Push(len(outer))
	copy(room, outer)
	count := (s.payload + s.size - 1) / s.size
	for n, got := range segments(t, p) {
		want := s.build(t, n, count, data[n*s.size:min((n+1)*s.size, len(data))])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("segment %d differs (-want +got):\n%s", n, diff)
		}
	}
}

func TestSegmentsOfRandomPackets(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	outers := []string{"", "v4", "v4 df", "v6"}
	for range 300 {
		s := stack{v6: r.IntN(2) == 0, udp: r.IntN(2) == 0, outer: outers[r.IntN(4)], flags: uint8(r.Uint32()), id: uint16(r.Uint32()),
			tcpOptions: 4 * r.IntN(11), ipOptions: 4 * r.IntN(11), payload: r.IntN(12000), size: 1 + r.IntN(3000)}
		if s.size < 20 {
			s.payload %= 500
		}
		checkSegments(t, s, r.IntN(2) == 0)
	}
}

// Field case 2: a receive-merged upload is three packets of the MTU, not one
// that is too big.
func TestSegmentMergedUpload(t *testing.T) {
	s := stack{payload: 4344, size: 1448, tcpOptions: 12, flags: packet.ACK | packet.PSH}
	p := s.superFrame(t, randomBytes(9, s.payload), true)
	if p.Len() != 4396 || p.WireLen() != 1500 {
		t.Fatalf("super-frame of %d bytes, %d on the wire; want 4396 and 1500", p.Len(), p.WireLen())
	}
	got := segments(t, p)
	if len(got) != 3 {
		t.Fatalf("%d segments, want 3", len(got))
	}
	for n, b := range got {
		if len(b) != 1500 {
			t.Errorf("segment %d has %d bytes, want 1500", n, len(b))
		}
		if seq, want := binary.BigEndian.Uint32(b[24:]), uint32(0xfffffc00)+uint32(n)*1448; seq != want {
			t.Errorf("segment %d has sequence number %d, want %d", n, seq, want)
		}
		if psh := b[33]&packet.PSH != 0; psh != (n == 2) {
			t.Errorf("segment %d: PSH %t", n, psh)
		}
	}
}

func TestSegmentUDPWithoutChecksumStaysSo(t *testing.T) {
	s := stack{udp: true, payload: 3000, size: 1000}
	p := s.superFrame(t, randomBytes(1, s.payload), false)
	copy(p.ChecksumField(), []byte{0, 0})
	for n, b := range segments(t, p) {
		if b[26] != 0 || b[27] != 0 {
			t.Errorf("segment %d has checksum %x, want none", n, b[26:28])
		}
	}
}

func TestSegmentRefuses(t *testing.T) {
	good := func() *packet.Packet {
		return stack{outer: "v4", payload: 3000, size: 1000}.superFrame(t, randomBytes(1, 3000), true)
	}
	for name, spoil := range map[string]func(p *packet.Packet){
		"an ordinary packet":                func(p *packet.Packet) { p.GSO = packet.GSONone },
		"segments of no size":               func(p *packet.Packet) { p.GSOSize = 0 },
		"a TCP header of 4 bytes":           func(p *packet.Packet) { p.Buf[p.L4+12] = 0x10 },
		"a TCP header past the end":         func(p *packet.Packet) { p.End = p.L4 + 10 },
		"offsets out of order":              func(p *packet.Packet) { p.L4 = p.L3 },
		"an outer header of GRE":            func(p *packet.Packet) { p.Buf[p.Start+9] = 47 },
		"no IP version":                     func(p *packet.Packet) { p.Buf[p.L3] = 0x95 },
		"an outer header longer than it is": func(p *packet.Packet) { p.Buf[p.Start] = 0x46 },
	} {
		t.Run(name, func(t *testing.T) {
			p := good()
			spoil(p)
			var s packet.Segmenter
			if err := s.Reset(p); err == nil {
				t.Error("Reset took it")
			}
			if h, _ := s.Next(make([]byte, packet.MaxSegmentHeader)); h != nil {
				t.Error("Next gave a segment")
			}
		})
	}
}

func TestSegmentAllocatesNothing(t *testing.T) {
	p := stack{outer: "v4", payload: 60000, size: 1428, flags: packet.ACK}.superFrame(t, randomBytes(1, 60000), true)
	var s packet.Segmenter
	buf := make([]byte, packet.MaxSegmentHeader)
	if n := testing.AllocsPerRun(20, func() {
		if err := s.Reset(p); err != nil {
			t.Fatal(err)
		}
		for h, _ := s.Next(buf); h != nil; h, _ = s.Next(buf) {
		}
	}); n != 0 {
		t.Errorf("%v allocations a super-frame, want 0", n)
	}
}

func TestFinishChecksum(t *testing.T) {
	for _, s := range []stack{
		{payload: 0, size: 1, flags: packet.SYN}, {payload: 1001, size: 1}, {v6: true, payload: 1000, size: 1},
		{udp: true, payload: 7, size: 1}, {udp: true, v6: true, payload: 1200, size: 1},
	} {
		p := s.superFrame(t, randomBytes(5, s.payload), false)
		p.GSO, p.GSOSize = packet.GSONone, 0
		want := bytes.Clone(p.Bytes())
		packet.DeferChecksum(p)
		if !p.CsumPartial {
			t.Fatalf("%v: DeferChecksum left the checksum finished", s)
		}
		if !packet.FinishChecksum(p) || p.CsumPartial {
			t.Fatalf("%v: FinishChecksum did not finish", s)
		}
		if diff := cmp.Diff(want, p.Bytes()); diff != "" {
			t.Errorf("%v: (-want +got)\n%s", s, diff)
		}
	}
}

func TestFinishChecksumOfUDPIsNeverZero(t *testing.T) {
	s := stack{udp: true, payload: 4, size: 1}
	p := s.superFrame(t, make([]byte, 4), false)
	// Make the payload such that everything sums to 0xffff.
	c := binary.BigEndian.Uint16(p.ChecksumField())
	binary.BigEndian.PutUint16(p.Buf[p.End-2:], c)
	packet.DeferChecksum(p)
	packet.FinishChecksum(p)
	if got := binary.BigEndian.Uint16(p.ChecksumField()); got != 0xffff {
		t.Errorf("checksum %04x, want ffff", got)
	}
}

func TestFinishChecksumOutsideThePacket(t *testing.T) {
	for _, start := range []int{-1, 0, packet.Headroom - 1, packet.Headroom + 1000} {
		p := stack{payload: 10, size: 1}.superFrame(t, make([]byte, 10), true)
		p.CsumStart = start
		before := bytes.Clone(p.Buf)
		if packet.FinishChecksum(p) || !bytes.Equal(before, p.Buf) {
			t.Errorf("checksum from byte %d on was finished", start)
		}
	}
}
