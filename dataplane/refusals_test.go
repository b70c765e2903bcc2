package dataplane_test

import (
	"bytes"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// nat_icmp_send: a masqueraded server that speaks from its port about no
// connection is told "port unreachable", by the director's address towards it.
func TestNATICMPSend(t *testing.T) {
	for _, c := range []struct {
		name    string
		proto   packet.Proto
		v6      bool
		method  lvs.Method
		setting string
		port    uint16
		flags   byte // of TCP, or the chunk of SCTP
		told    bool
	}{
		{"a segment", packet.TCP, false, lvs.Masq, "1", 8080, packet.ACK, true},
		{"a SYN", packet.TCP, false, lvs.Masq, "1", 8080, packet.SYN, true},
		{"a reset", packet.TCP, false, lvs.Masq, "1", 8080, packet.RST, false},
		{"a datagram", packet.UDP, false, lvs.Masq, "1", 8080, 0, true},
		{"an SCTP packet", packet.SCTP, false, lvs.Masq, "1", 8080, sctpData, true},
		{"an SCTP ABORT", packet.SCTP, false, lvs.Masq, "1", 8080, sctpAbort, false},
		{"IPv6, a segment", packet.TCP, true, lvs.Masq, "1", 8080, packet.ACK, true},
		{"IPv6, a datagram", packet.UDP, true, lvs.Masq, "1", 8080, 0, true},
		{"another port", packet.TCP, false, lvs.Masq, "1", 9999, packet.ACK, false},
		{"switched off", packet.TCP, false, lvs.Masq, "0", 8080, packet.ACK, false},
		{"a server of direct routing", packet.TCP, false, lvs.Route, "1", 80, packet.ACK, false},
		{"a server of a tunnel", packet.TCP, false, lvs.Tunnel, "1", 80, packet.ACK, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e := service("rr", c.method, 1), endsOf(c.v6)
			if c.v6 {
				s = service6("rr", c.method, 1)
			}
			s.Proto = c.proto
			w := newWorld(t, s)
			w.set("nat_icmp_send", c.setting)
			body := transport(c.proto, c.port, 1999, false)
			switch c.proto {
			case packet.TCP:
				body[13] = c.flags
			case packet.SCTP:
				body = append(body, c.flags, 0, 0, 4)
			}
			p := carrying(c.proto, e.server, e.client, body)
			sent := bytes.Clone(p.Bytes())
			sent[ttlAt(sent)]--
			if !c.v6 {
				packet.PutIPv4Checksum(sent[:20])
			}
			out := w.in(serverLink, p)
			if !c.told {
				if len(out) != 0 {
					t.Errorf("%v left", summaries(out))
				}
				w.wantVerdict(dataplane.NotOurs, 1)
				w.wantVerdict(dataplane.ServerRefused, 0)
				return
			}
			told := one(t, out)
			b := told.Buf[told.L4:told.End]
			from, kind, code := "192.0.2.254", byte(3), byte(3)
			if c.v6 {
				from, kind, code = "2001:db8:2::fe", 1, 4
			}
			if b[0] != kind || b[1] != code || told.Flow.Src != addr(from) || told.Flow.Dst != addr(e.server) || told.Link != serverLink || told.DstMAC != serverMAC(1) {
				t.Errorf("%v to %v by link %d: %d/%d", told.Flow, told.DstMAC, told.Link, b[0], b[1])
			}
			if !bytes.Equal(b[8:], sent) { // as it is when the router has lowered its TTL
				t.Errorf("quotes\n%x\nwant\n%x", b[8:], sent)
			}
			w.wantVerdict(dataplane.ServerRefused, 1)
		})
	}
}

// Field case 10, c and d: without don't-fragment, or with pmtu_disc 0 in spite of
// it, a packet that is too large for the tunnel goes out in outer fragments, and
// nobody is told; the outer header never says don't-fragment with pmtu_disc 0.
func TestTunnelPacketsThatMayBeCutAre(t *testing.T) {
	for _, c := range []struct {
		name    string
		setting string
		noDF    bool
		size    int
		pieces  []int // lengths of what leaves; nil: an ICMP error
		outerDF bool
	}{
		{"pmtu_disc 1, don't-fragment, too large", "1", false, 1500, nil, false},
		{"pmtu_disc 1, don't-fragment, fits", "1", false, 1480, []int{1500}, true},
		{"pmtu_disc 1, may be cut", "1", true, 1500, []int{1500, 40}, false},
		{"pmtu_disc 0, don't-fragment, too large", "0", false, 1500, []int{1500, 40}, false},
		{"pmtu_disc 0, don't-fragment, fits", "0", false, 1480, []int{1500}, false},
		{"pmtu_disc 0, may be cut", "0", true, 1500, []int{1500, 40}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, service("rr", lvs.Tunnel, 1))
			w.set("pmtu_disc", c.setting)
			w.establish("40000")
			p := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, NoDF: c.noDF, ID: 7, Payload: make([]byte, c.size-40)})
			inner := bytes.Clone(p.Bytes())
			out := w.in(clientLink, p)
			if c.pieces == nil {
				if got := toldMTU(t, one(t, out)); got != 1480 {
					t.Errorf("told an MTU of %d, want 1480", got)
				}
				return
			}
			var sizes []int
			for _, o := range out {
				sizes = append(sizes, o.Len())
				b := o.Bytes()
				if b[6]&0x40 != 0 != c.outerDF {
					t.Errorf("the outer header has flags %#x", b[6])
				}
			}
			if len(sizes) != len(c.pieces) || sizes[0] != c.pieces[0] || sizes[len(sizes)-1] != c.pieces[len(sizes)-1] {
				t.Fatalf("%v bytes left, want %v", sizes, c.pieces)
			}
			whole, err := packettest.Join(out)
			if err != nil {
				t.Fatal(err)
			}
			got := innermost(whole.Bytes())
			if !bytes.Equal(got[12:], inner[12:]) || !bytes.Equal(got[:8], inner[:8]) {
				t.Errorf("inside is\n%x\nwant\n%x", got[:20], inner[:20])
			}
			w.wantVerdict(dataplane.TooBig, 0)
		})
	}
}
