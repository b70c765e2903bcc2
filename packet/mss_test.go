package packet_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// synWith is a SYN with the given bytes as options, padded with their end; the
// checksum is computed from scratch.
func synWith(t testing.TB, v6 bool, options []byte) []byte {
	t.Helper()
	var ip gopacket.NetworkLayer = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.ParseIP("198.51.100.7"), DstIP: net.ParseIP("192.0.2.10")}
	if v6 {
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: net.ParseIP("2001:db8:77::7"), DstIP: net.ParseIP("2001:db8:f::10")}
	}
	header := make([]byte, 20, 60)
	binary.BigEndian.PutUint16(header, 40000)
	binary.BigEndian.PutUint16(header[2:], 80)
	header[13] = packet.SYN
	header = append(header, options...)
	for len(header)%4 != 0 {
		header = append(header, 0)
	}
	header[12] = byte(len(header) / 4 << 4)
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		ip.(gopacket.SerializableLayer), gopacket.Payload(header)); err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(buf.Bytes())
	at := len(b) - len(header)
	binary.BigEndian.PutUint16(b[at+16:], packettest.TransportChecksum(b))
	return b
}

func TestClampMSS(t *testing.T) {
	mss := func(n int) []byte { return []byte{2, 4, byte(n >> 8), byte(n)} }
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	nop, sack, scale := []byte{1}, []byte{4, 2}, []byte{3, 3, 7}
	stamp := []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 0}
	for name, tt := range map[string]struct{ in, want []byte }{
		"as Linux sends it":                   {join(mss(1460), sack, stamp, nop, scale), join(mss(1360), sack, stamp, nop, scale)},
		"behind a no-operation: an odd place": {join(nop, mss(1460)), join(nop, mss(1360))},
		"behind a window scale: an odd place": {join(scale, mss(9000), sack), join(scale, mss(1360), sack)},
		"the largest there is":                {mss(65535), mss(1360)},
		"small enough already":                {mss(1360), mss(1360)},
		"smaller":                             {mss(536), mss(536)},
		"none":                                {join(nop, nop, sack), join(nop, nop, sack)},
		"no options at all":                   {nil, nil},
		"twice":                               {join(mss(1460), nop, mss(1400)), join(mss(1360), nop, mss(1360))},
		"twice, the second small":             {join(mss(1460), mss(500)), join(mss(1360), mss(500))},
		"behind the end of options":           {join([]byte{0, 0, 0, 0}, mss(1460)), join([]byte{0, 0, 0, 0}, mss(1460))},
		"cut by the header's end":             {join(nop, []byte{2, 4, 5}), join(nop, []byte{2, 4, 5})},
		"only its kind":                       {join(nop, nop, nop, []byte{2}), join(nop, nop, nop, []byte{2})},
		"of length 3":                         {join([]byte{2, 3, 5}, mss(1460)), join([]byte{2, 3, 5}, mss(1360))},
		"of length 6":                         {join([]byte{2, 6, 5, 0xb4, 0, 0}, mss(1460)), join([]byte{2, 6, 5, 0xb4, 0, 0}, mss(1360))},
		"behind an option of length 0":        {join([]byte{9, 0}, mss(1460)), join([]byte{9, 0}, mss(1460))},
		"behind an option of length 1":        {join([]byte{9, 1}, mss(1460)), join([]byte{9, 1}, mss(1460))},
		"behind one longer than the header":   {join([]byte{9, 200}, mss(1460)), join([]byte{9, 200}, mss(1460))},
	} {
		for _, v6 := range []bool{false, true} {
			in, want := synWith(t, v6, tt.in), synWith(t, v6, tt.want)
			p := packettest.Packet(in, map[bool]packet.EtherType{false: packet.EtherIPv4, true: packet.EtherIPv6}[v6])
			if e := packet.Parse(p); e != packet.ParseOK {
				t.Fatalf("%s: %v", name, e)
			}
			if changed := packet.ClampMSS(p, 1360); changed != !bytes.Equal(in, want) {
				t.Errorf("%s: says changed: %v", name, changed)
			}
			if diff := cmp.Diff(want, p.Bytes()); diff != "" {
				t.Errorf("%s, IPv6 %v (-want +got):\n%s", name, v6, diff)
			}
		}
	}
}

// What is no whole TCP header with SYN stays as it is.
func TestClampMSSLeavesOthersAlone(t *testing.T) {
	b := synWith(t, false, []byte{2, 4, 5, 0xb4})
	for name, change := range map[string]func(b []byte) []byte{
		"no SYN":                          func(b []byte) []byte { b[20+13] = packet.ACK; return b },
		"a data offset beyond the packet": func(b []byte) []byte { b[20+12] = 0xf0; return b },
		"a data offset below the header":  func(b []byte) []byte { b[20+12] = 0x10; return b },
		"UDP":                             func(b []byte) []byte { b[9] = 17; return b },
	} {
		p := packettest.Packet(change(bytes.Clone(b)), packet.EtherIPv4)
		packet.PutIPv4Checksum(p.Bytes()[:20])
		if e := packet.Parse(p); e != packet.ParseOK {
			t.Fatalf("%s: %v", name, e)
		}
		before := bytes.Clone(p.Bytes())
		if packet.ClampMSS(p, 500) || !bytes.Equal(before, p.Bytes()) {
			t.Errorf("%s: changed", name)
		}
	}
}

// An unfinished checksum says nothing of the options: it must stay, and be right
// when it is finished.
func TestClampMSSOfAnUnfinishedChecksum(t *testing.T) {
	p := packettest.Packet(synWith(t, false, []byte{1, 2, 4, 5, 0xb4}), packet.EtherIPv4)
	if e := packet.Parse(p); e != packet.ParseOK {
		t.Fatal(e)
	}
	packet.DeferChecksum(p)
	if !packet.ClampMSS(p, 1360) || !packet.FinishChecksum(p) {
		t.Fatal("refused")
	}
	if diff := cmp.Diff(synWith(t, false, []byte{1, 2, 4, 5, 0x50}), p.Bytes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzClampMSS: whatever the options, nothing panics, only the options change,
// and a checksum that was right stays right.
func FuzzClampMSS(f *testing.F) {
	f.Add([]byte{2, 4, 5, 0xb4, 1, 3, 3, 7}, uint16(1360), false)
	f.Add([]byte{1, 2, 4, 5, 0xb4, 2, 4, 255, 255}, uint16(0), true)
	f.Fuzz(func(t *testing.T, options []byte, mss uint16, v6 bool) {
		b := synWith(t, v6, options[:min(len(options), 40)])
		p := packettest.Packet(b, map[bool]packet.EtherType{false: packet.EtherIPv4, true: packet.EtherIPv6}[v6])
		if e := packet.Parse(p); e != packet.ParseOK {
			t.Fatal(e)
		}
		packet.ClampMSS(p, mss)
		if err := packettest.Verify(p.Bytes()); err != nil {
			t.Fatal(err)
		}
		got := p.Bytes()
		at := p.L4 - p.Start
		if !bytes.Equal(got[:at+16], b[:at+16]) || !bytes.Equal(got[at+18:at+20], b[at+18:at+20]) || len(got) != len(b) {
			t.Fatal("more than options and checksum changed")
		}
	})
}
