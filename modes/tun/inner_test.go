package tun_test

import (
	"bytes"
	"testing"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/lvs/lvstest"
	"pktdirector/modes/tun"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// sent is a tunnel packet as it leaves the director: what follows its outer IP
// header, and that header's protocol.
func sent(t testing.TB, outer, inner int, k lvs.TunnelInfo) (proto packet.Proto, payload []byte) {
	t.Helper()
	p := build(t, inner, packettest.Spec{Flags: packet.ACK, Payload: []byte("some data")})
	if !tun.New(7).Forward(p, conn(outer, inner, k), conntrack.Request, packet.MustParseAddr(outerEnds[outer][0])) {
		t.Fatal("refused")
	}
	b := p.Bytes()
	if outer == 4 {
		return packet.Proto(b[9]), b[20:]
	}
	return packet.Proto(b[6]), b[40:]
}

// minQuote is how much of a payload every router quotes (RFC 792).
const minQuote = 8

// TestInner cuts a packet of each kind at every length that a router may quote.
func TestInner(t *testing.T) {
	f := tun.New(1)
	each(t, func(t *testing.T, outer, inner int, k lvs.TunnelInfo) {
		proto, payload := sent(t, outer, inner, k)
		shim := f.Overhead(conn(outer, inner, k)) - ipLen(outer)
		want := map[int]packet.EtherType{4: packet.EtherIPv4, 6: packet.EtherIPv6}[inner]
		for n := minQuote; n <= len(payload); n++ {
			skip, kind, ok := f.Inner(proto, payload[:n])
			if !ok || skip != min(n, shim) || n > shim && kind != want {
				t.Fatalf("cut at %d of %d bytes of headers: %d, %#x, %v", n, shim, skip, kind, ok)
			}
		}
	})
}

func TestInnerOfOtherPackets(t *testing.T) {
	gue := lvs.TunnelInfo{Type: lvs.GUE, Port: 6080}
	gre := lvs.TunnelInfo{Type: lvs.GRE}
	for name, tt := range map[string]struct {
		kind   lvs.TunnelInfo
		change func(b []byte) []byte
	}{
		"GRE with a key":               {gre, func(b []byte) []byte { b[0] |= 0x20; return b }},
		"GRE with a sequence number":   {gre, func(b []byte) []byte { b[0] |= 0x10; return b }},
		"GRE of version 1":             {gre, func(b []byte) []byte { b[1] = 1; return b }},
		"GRE that carries ARP":         {gre, func(b []byte) []byte { b[3] = 6; return b }},
		"less than a GRE header":       {gre, func(b []byte) []byte { return b[:3] }},
		"GUE of version 1":             {gue, func(b []byte) []byte { b[8] = 0x40; return b }},
		"GUE with options":             {gue, func(b []byte) []byte { b[8] = 1; return b }},
		"GUE with flags":               {gue, func(b []byte) []byte { b[11] = 1; return b }},
		"GUE that carries TCP":         {gue, func(b []byte) []byte { b[9] = 6; return b }},
		"less than a UDP header":       {gue, func(b []byte) []byte { return b[:7] }},
		"not the version that is said": {lvs.TunnelInfo{}, func(b []byte) []byte { b[0] = 0x65; return b }},
	} {
		proto, payload := sent(t, 4, 4, tt.kind)
		if _, _, ok := tun.New(1).Inner(proto, tt.change(bytes.Clone(payload))); ok {
			t.Errorf("%s: found an inner packet", name)
		}
	}
	_, payload := sent(t, 4, 4, lvs.TunnelInfo{})
	for _, proto := range []packet.Proto{packet.TCP, packet.ICMP, packet.SCTP, 0, 255} {
		if _, _, ok := tun.New(1).Inner(proto, payload); ok {
			t.Errorf("protocol %v: found an inner packet", proto)
		}
	}
}

// FuzzInner: whatever the bytes, nothing panics, and an inner packet begins
// within them with its IP version.
func FuzzInner(f *testing.F) {
	for _, k := range lvstest.Tunnels() {
		for _, inner := range []int{4, 6} {
			proto, payload := sent(f, 4, inner, k)
			f.Add(uint8(proto), payload)
			f.Add(uint8(proto), payload[:minQuote])
		}
	}
	e := tun.New(1)
	f.Fuzz(func(t *testing.T, proto uint8, b []byte) {
		skip, kind, ok := e.Inner(packet.Proto(proto), b)
		if !ok {
			return
		}
		if skip < 0 || skip > len(b) || kind != packet.EtherIPv4 && kind != packet.EtherIPv6 {
			t.Fatalf("%d of %d bytes, %#x", skip, len(b), kind)
		}
		if version := map[packet.EtherType]byte{packet.EtherIPv4: 4, packet.EtherIPv6: 6}[kind]; skip < len(b) && b[skip]>>4 != version {
			t.Fatalf("an inner packet of version %d at %d, said to be %#x", b[skip]>>4, skip, kind)
		}
	})
}
