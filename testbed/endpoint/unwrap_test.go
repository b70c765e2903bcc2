package endpoint

import (
	"bytes"
	"fmt"
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

// inner is a UDP packet that client and VIP could exchange.
func inner(t *testing.T, tos uint8) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 63, TOS: tos, Protocol: layers.IPProtocolUDP, Flags: layers.IPv4DontFragment,
		SrcIP: []byte{198, 51, 100, 10}, DstIP: []byte{203, 0, 113, 80}}
	udp := &layers.UDP{SrcPort: 1000, DstPort: 7}
	udp.SetNetworkLayerForChecksum(ip)
	return serialize(t, ip, udp, gopacket.Payload("hello"))
}

func serialize(t testing.TB, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

// outer wraps b.
func outer(t *testing.T, b []byte, change func(*layers.IPv4)) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 63, Protocol: layers.IPProtocolIPv4, Flags: layers.IPv4DontFragment,
		SrcIP: []byte{203, 0, 113, 2}, DstIP: []byte{10, 2, 0, 11}}
	if change != nil {
		change(ip)
	}
	return serialize(t, ip, gopacket.Payload(b))
}

func packetOf(b []byte) *packet.Packet {
	p := new(packet.Packet)
	p.Reset(append(make([]byte, packet.Headroom), b...), packet.Headroom, len(b))
	p.EtherType = packet.EtherIPv4
	return p
}

func TestUnwrap(t *testing.T) {
	const ect0, ce = 0b10, 0b11
	plain, ectIn, ceIn := inner(t, 0xb8), inner(t, ect0), inner(t, ce)
	tests := map[string]struct {
		in   []byte
		want []byte // nil: not unwrapped
	}{
		"a packet comes out as it was":          {outer(t, plain, nil), plain},
		"bytes behind the packet are cut off":   {append(outer(t, plain, nil), 1, 2, 3), plain},
		"outer header with options":             {outer(t, plain, func(ip *layers.IPv4) { ip.Options = []layers.IPv4Option{{OptionType: 1}} }), plain},
		"congestion on the way is passed on":    {outer(t, ectIn, func(ip *layers.IPv4) { ip.TOS = ce }), ceIn},
		"congestion that cannot be told drops":  {outer(t, plain, func(ip *layers.IPv4) { ip.TOS = ce }), nil},
		"another protocol":                      {outer(t, plain, func(ip *layers.IPv4) { ip.Protocol = layers.IPProtocolGRE }), nil},
		"a piece":                               {outer(t, plain, func(ip *layers.IPv4) { ip.FragOffset = 8 }), nil},
		"nothing inside":                        {outer(t, nil, nil), nil},
		"inner packet cut short":                {outer(t, plain[:len(plain)-1], nil), nil},
		"something else than IPv4 inside":       {outer(t, append([]byte{0x60}, plain[1:]...), nil), nil},
		"a packet that is not tunnelled at all": {plain, nil},
		"no packet":                             {nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := packetOf(tt.in)
			if ok := packet.Parse(p) == packet.ParseOK && unwrap(p, GUEPort); ok != (tt.want != nil) {
				t.Fatalf("unwrap says %v", ok)
			}
			if tt.want != nil {
				if diff := cmp.Diff(tt.want, p.Bytes()); diff != "" {
					t.Errorf("packet (-want +got):\n%s", diff)
				}
			} else if diff := cmp.Diff(tt.in, p.Bytes(), cmp.Transformer("", func(b []byte) string { return string(b) })); diff != "" {
				t.Errorf("packet changed (-want +got):\n%s", diff)
			}
		})
	}
}

// Unwrapping returns what was wrapped, and never more than the packet has.
func FuzzUnwrap(f *testing.F) {
	f.Add([]byte{0x45, 0, 0, 40, 0, 0, 0x40, 0, 63, 4, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
		0x45, 0, 0, 20, 0, 0, 0x40, 0, 63, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0x4f})
	for _, kind := range lvstest.Tunnels() {
		for _, outer := range []int{4, 6} {
			for _, in := range []int{4, 6} {
				_, b := wrapped(f, kind, outer, in)
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := packetOf(b)
		for _, kind := range []packet.EtherType{packet.EtherIPv4, packet.EtherIPv6} {
			p = packetOf(b)
			p.EtherType = kind
			if packet.Parse(p) == packet.ParseOK {
				break
			}
		}
		if packet.Parse(p) != packet.ParseOK || !unwrap(p, GUEPort) {
			return
		}
		if p.Start < packet.Headroom+20 || p.End > packet.Headroom+len(b) || p.Len() < 20 {
			t.Errorf("unwrapped to [%d:%d] of %d bytes", p.Start-packet.Headroom, p.End-packet.Headroom, len(b))
		}
	})
}

// wrapped returns a client's packet, and the same in a director's tunnel.
func wrapped(t testing.TB, k lvs.TunnelInfo, outer, inner int) (in, out []byte) {
	t.Helper()
	ends := map[int][2]string{4: {"198.51.100.10:1000", "203.0.113.80:80"}, 6: {"[2001:db8:1::10]:1000", "[2001:db8:2::80]:80"}}[inner]
	tunnel := map[int][2]string{4: {"203.0.113.2", "10.2.0.11"}, 6: {"2001:db8:2::2", "2001:db8:3::11"}}[outer]
	p := packettest.Build(t, packettest.Spec{Src: ends[0], Dst: ends[1], Flags: packet.ACK, Payload: []byte("hello")})
	if e := packet.Parse(p); e != packet.ParseOK {
		t.Fatal(e)
	}
	in = bytes.Clone(p.Bytes())
	c := &conntrack.Conn{Dest: packet.MustParseAddr(tunnel[1]), Method: lvs.Tunnel}
	c.SetTunnel(k)
	if !tun.New(1).Forward(p, c, conntrack.Request, packet.MustParseAddr(tunnel[0])) {
		t.Fatal("not wrapped")
	}
	return in, p.Bytes()
}

// Each kind of tunnel comes apart again; a flipped bit in what its checksum
// covers is noticed where it has one.
func TestUnwrapEachKind(t *testing.T) {
	for name, k := range lvstest.Tunnels() {
		for _, outer := range []int{4, 6} {
			for _, inner := range []int{4, 6} {
				t.Run(fmt.Sprintf("%s %din%d", name, inner, outer), func(t *testing.T) {
					in, out := wrapped(t, k, outer, inner)
					parsed := func(b []byte) *packet.Packet {
						p := packetOf(b)
						if outer == 6 {
							p.EtherType = packet.EtherIPv6
						}
						if e := packet.Parse(p); e != packet.ParseOK {
							t.Fatal(e)
						}
						return p
					}
					p := parsed(out)
					if !unwrap(p, GUEPort) || !bytes.Equal(p.Bytes(), in) {
						t.Fatalf("out came % x, want % x", p.Bytes(), in)
					}
					if k.Type == lvs.GUE && unwrap(parsed(out), GUEPort+1) {
						t.Error("a datagram to another port was taken for GUE")
					}
					spoilt := bytes.Clone(out)
					spoilt[len(spoilt)-1] ^= 1
					if got, want := unwrap(parsed(spoilt), GUEPort), k.Checksum == lvs.NoChecksum; got != want {
						t.Errorf("with a flipped bit: taken %v, want %v", got, want)
					}
				})
			}
		}
	}
}
