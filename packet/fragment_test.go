package packet_test

import (
	"bytes"
	"testing"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// cut returns a packet's fragments of at most limit bytes.
func cut(tb testing.TB, p *packet.Packet, limit int) []*packet.Packet {
	tb.Helper()
	var f packet.Fragmenter
	if f.Reset(p, limit, 77) != nil {
		return nil
	}
	var list []*packet.Packet
	var head [packet.MaxSegmentHeader]byte
	for h, payload := f.Next(head[:]); h != nil; h, payload = f.Next(head[:]) {
		q := packettest.Packet(append(bytes.Clone(h), payload...), p.EtherType)
		if q.Len() > limit {
			tb.Fatalf("a fragment of %d bytes, at most %d", q.Len(), limit)
		}
		list = append(list, q)
	}
	return list
}

// FuzzFragment: whatever the length and the limit, the fragments make the packet.
func FuzzFragment(f *testing.F) {
	f.Add(uint16(4000), uint16(1400), false)
	f.Add(uint16(4000), uint16(1400), true)
	f.Add(uint16(9), uint16(28), false)
	f.Fuzz(func(t *testing.T, n, limit uint16, v6 bool) {
		p := datagram(t, v6, 8+int(n)%60000)
		list := cut(t, p, int(limit))
		if list == nil {
			return
		}
		got, err := packettest.Join(list)
		if err != nil || !bytes.Equal(got.Bytes()[got.Len()-8:], p.Bytes()[p.Len()-8:]) || got.Len() != p.Len() {
			t.Fatalf("%d bytes in %d fragments of at most %d: %v", p.Len(), len(list), limit, err)
		}
		if err := packettest.Verify(got.Bytes()); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzOptions: whatever the options, nothing panics, and a packet whose options
// are right keeps its length and a right header checksum.
func FuzzOptions(f *testing.F) {
	f.Add([]byte{7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{131, 7, 4, 1, 2, 3, 4, 0})
	f.Fuzz(func(t *testing.T, options []byte) {
		options = options[:min(len(options), 40)/4*4]
		raw := append(bytes.Clone(datagram(t, false, 64).Bytes()[:20]), options...)
		raw = append(raw, make([]byte, 64)...)
		raw[0], raw[3] = 4<<4|byte(5+len(options)/4), byte(len(raw))
		packet.PutIPv4Checksum(raw[:20+len(options)])
		p := packettest.Packet(raw, packet.EtherIPv4)
		if e := packet.Parse(p); e != packet.ParseOK {
			t.Fatalf("before: %v", e) // Parse has no opinion of options
		}
		if fault, at := packet.CheckOptions(p); fault == packet.OptionBroken && int(at) >= 20+len(options) {
			t.Fatalf("a fault at %d of %d", at, 20+len(options))
		} else if fault == packet.OptionsOK {
			packet.RecordOptions(p, packet.MustParseAddr("192.0.2.1"), packet.MustParseAddr("192.0.2.2"), 1000)
		}
		if e := packet.Parse(p); e != packet.ParseOK || p.Len() != len(raw) {
			t.Fatalf("afterwards: %v, %d bytes of %d", e, p.Len(), len(raw))
		}
	})
}
