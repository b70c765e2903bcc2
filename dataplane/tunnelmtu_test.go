package dataplane_test

import (
	"fmt"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/lvs/lvstest"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// tunnelHeaders are the bytes in front of a packet, as docs/tunnels.md has them.
func tunnelHeaders(k lvs.TunnelInfo, outerV6 bool) int {
	n := map[lvs.TunnelType]int{lvs.IPIP: 20, lvs.GRE: 24, lvs.GUE: 32}[k.Type]
	if k.Type == lvs.GRE && k.Checksum == lvs.Checksum {
		n = 28
	}
	if outerV6 {
		n += 20
	}
	return n
}

// A sender of IPv6 is never told less than 1280 (RFC 8200 section 5): a tunnel
// carries IPv6 well where its headers fit beside that, and below, what is larger
// than the rest does not pass.
func TestIPv6InTunnelsOverASmallMTU(t *testing.T) {
	for name, k := range lvstest.Tunnels() {
		for _, outerV6 := range []bool{false, true} {
			for _, lacks := range []int{0, 1, 10} {
				t.Run(fmt.Sprintf("%s, server IPv6 %v, %d bytes too small", name, outerV6, lacks), func(t *testing.T) {
					w := newWorld(t, tunnelService(true, outerV6, k))
					if got, want := k.HeaderLen(tunnelService(true, outerV6, k).Servers[0].RIP), tunnelHeaders(k, outerV6); got != want {
						t.Fatalf("%d bytes of headers, want %d", got, want)
					}
					mtu := 1280 + tunnelHeaders(k, outerV6) - lacks
					w.d.SetLinks(links(mtu))
					one(t, w.in(clientLink, clientSegment(t, true, packettest.Spec{Flags: packet.SYN})))
					segment := func(size int) *packet.Packet {
						return clientSegment(t, true, packettest.Spec{Flags: packet.ACK, Payload: make([]byte, size-60)})
					}
					out := one(t, w.in(clientLink, segment(1280-lacks)))
					if out.Len() != mtu || out.Link != serverLink {
						t.Errorf("the largest packet that fits left with %d bytes by link %d, want %d", out.Len(), out.Link, mtu)
					}
					if b := out.Bytes(); !outerV6 && b[6]&0x40 != 0 {
						t.Error("routers may not cut it")
					}
					e := one(t, w.in(clientLink, segment(1280-lacks+1)))
					kind, _, told, _ := icmp6(t, e)
					if kind != 2 || told != 1280 {
						t.Errorf("ICMPv6 %d with %d, want 2 with 1280", kind, told)
					}
					w.wantVerdict(dataplane.TooBig, 1)
				})
			}
		}
	}
}
