package endpoint

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"pktdirector/packet"
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

func serialize(t *testing.T, l ...gopacket.SerializableLayer) []byte {
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
			if ok := unwrap(p); ok != (tt.want != nil) {
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
	f.Fuzz(func(t *testing.T, b []byte) {
		p := packetOf(b)
		if !unwrap(p) {
			return
		}
		if p.Start < packet.Headroom+20 || p.End > packet.Headroom+len(b) || p.Len() < 20 {
			t.Errorf("unwrapped to [%d:%d] of %d bytes", p.Start-packet.Headroom, p.End-packet.Headroom, len(b))
		}
	})
}
