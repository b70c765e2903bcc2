package capture_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"pktdirector/capture"
)

// TestLinkLayers decodes headers of every link type that is read, whole and cut at
// every byte.
func TestLinkLayers(t *testing.T) {
	const macs = "020000000001 020000000002 "
	for _, c := range []struct {
		name string
		kind uint32
		data string // hexadecimal; what is behind | is the payload
		want string // see shown
	}{
		{"Ethernet", 1, macs + "0800 | 45", "0800 02:00:00:00:00:02>02:00:00:00:00:01"},
		{"Ethernet, broadcast", 1, "ffffffffffff 020000000002 0806 | 00", "0806 02:00:00:00:00:02>ff:ff:ff:ff:ff:ff broadcast"},
		{"Ethernet, multicast", 1, "333300000001 020000000002 86dd | 60", "86dd 02:00:00:00:00:02>33:33:00:00:00:01 multicast"},
		{"VLAN", 1, macs + "8100 6064 0800 | 45", "0800 02:00:00:00:00:02>02:00:00:00:00:01 8100:100"},
		{"QinQ", 1, macs + "88a8 00c8 8100 0064 86dd | 60", "86dd 02:00:00:00:00:02>02:00:00:00:00:01 88a8:200 8100:100"},
		{"old QinQ", 1, macs + "9100 00c8 8100 0064 0800 | 45", "0800 02:00:00:00:00:02>02:00:00:00:00:01 9100:200 8100:100"},
		{"five tags", 1, macs + "8100 0001 8100 0002 8100 0003 8100 0004 8100 | 0005 0800 45", "8100 02:00:00:00:00:02>02:00:00:00:00:01 8100:1 8100:2 8100:3 8100:4"},
		{"802.3 with LLC, as of spanning tree", 1, "0180c2000000 020000000002 0026 | 424203", "0000 02:00:00:00:00:02>01:80:c2:00:00:00 multicast"},
		{"802.3 with SNAP", 1, macs + "0020 aaaa03000000 0800 | 45", "0800 02:00:00:00:00:02>02:00:00:00:00:01"},
		{"raw IPv4", 101, "| 45", "0800"},
		{"raw IPv6", 12, "| 60", "86dd"},
		{"raw nothing", 14, "| 00", "0000"},
		{"IPv4", 228, "| 45", "0800"},
		{"IPv6", 229, "| 60", "86dd"},
		{"loopback, little-endian", 0, "02000000 | 45", "0800"},
		{"loopback, big-endian", 0, "00000002 | 45", "0800"},
		{"loopback, IPv6 of FreeBSD", 0, "1c000000 | 60", "86dd"},
		{"loopback, IPv6 of macOS", 0, "0000001e | 60", "86dd"},
		{"loopback, IPv6 of NetBSD", 108, "00000018 | 60", "86dd"},
		{"loopback, another family", 0, "07000000 | 45", "0000"},
		{"cooked, to us", 113, "0000 0001 0006 0200000000010000 0800 | 45", "0800 02:00:00:00:00:01>? to us incoming"},
		{"cooked, outgoing", 113, "0004 0001 0006 0200000000010000 0800 | 45", "0800 02:00:00:00:00:01>? outgoing"},
		{"cooked, other host", 113, "0003 0001 0006 0200000000010000 86dd | 60", "86dd 02:00:00:00:00:01>? other host incoming"},
		{"cooked, loopback", 113, "0000 0304 0006 0000000000000000 0800 | 45", "0800 00:00:00:00:00:00>? to us incoming"},
		{"cooked, tunnel device without addresses", 113, "0004 0300 0000 0000000000000000 0800 | 45", "0800 outgoing"},
		{"cooked, tagged", 113, "0000 0001 0006 0200000000010000 8100 0064 0800 | 45", "0800 02:00:00:00:00:01>? to us incoming 8100:100"},
		{"cooked, no EtherType", 113, "0002 0001 0006 0200000000010000 0004 | 424203", "0000 02:00:00:00:00:01>? multicast incoming"},
		{"cooked, netlink", 113, "0004 0338 0000 0000000000000000 0800 | 45", "0000 outgoing"},
		{"cooked v2", 276, "0800 0000 00000007 0001 00 06 0200000000010000 | 45", "0800 02:00:00:00:00:01>? to us incoming interface 7"},
		{"cooked v2, broadcast", 276, "0806 0000 00000008 0001 01 06 0200000000010000 | 00", "0806 02:00:00:00:00:01>? broadcast incoming interface 8"},
		{"cooked v2, tagged twice", 276, "88a8 0000 00000001 0001 04 06 0200000000010000 00c8 8100 0064 0800 | 45", "0800 02:00:00:00:00:01>? outgoing interface 1 88a8:200 8100:100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			head, payload, _ := strings.Cut(strings.ReplaceAll(c.data, " ", ""), "|")
			data, err := hex.DecodeString(head + payload)
			if err != nil {
				t.Fatal(err)
			}
			for cut := range len(data) + 1 {
				n := uint32(cut)
				got, warned, err := fromBytes(t, pcap(binary.LittleEndian, micro, 4, 0, c.kind, pcapRecord{1, 0, n, uint32(len(data)), data[:cut]}))
				if err != nil || len(warned) > 0 || len(got) != 1 {
					t.Fatalf("%d packets, %v, %v", len(got), warned, err)
				}
				k := got[0]
				if k.Truncated != (cut < len(data)) || k.Offset > cut {
					t.Errorf("cut at %d: %+v", cut, k.Record)
				}
				if have := hex.EncodeToString(k.data[k.Offset:]); cut == len(data) && (have != payload || shown(k) != c.want) {
					t.Errorf("payload %s, %s\nwant %s, %s", have, shown(k), payload, c.want)
				}
			}
		})
	}
}

// shown is a link layer in words.
func shown(k kept) string {
	s := fmt.Sprintf("%04x", uint16(k.EtherType))
	switch {
	case k.HasDst:
		s += fmt.Sprintf(" %v>%v", k.SrcMAC, k.DstMAC)
	case k.HasSrc:
		s += fmt.Sprintf(" %v>?", k.SrcMAC)
	}
	s += map[capture.Kind]string{capture.ToUs: " to us", capture.Broadcast: " broadcast", capture.Multicast: " multicast", capture.OtherHost: " other host"}[k.Kind]
	if k.Direction != capture.DirectionUnknown {
		s += " " + k.Direction.String()
	}
	if k.IfIndex != 0 {
		s += fmt.Sprintf(" interface %d", k.IfIndex)
	}
	for _, tag := range k.Tags() {
		s += fmt.Sprintf(" %04x:%d", uint16(tag.Type), tag.VLAN())
	}
	return s
}

// What pcapng says of packets beside their bytes.
func TestPacketOptions(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		u32 := func(v uint32) []byte { return order.AppendUint32(nil, v) }
		p := bytesOf(61, 2) // with padding behind it
		n := newNg(order).iface(1, 1500, option{2, []byte("eth0\x00")}, option{3, []byte("the front")}, option{12, []byte("Linux")}, option{11, []byte("\x00tcp port 80")})
		n.packet(0, 1, 61, p, option{1, []byte("one")}, option{2, u32(1 | 1<<2)}, option{1, []byte("two")}, option{5, order.AppendUint64(nil, 77)})
		n.packet(0, 2, 61, p, option{2, u32(2 | 4<<2)}, option{4, order.AppendUint64(nil, 3)})
		n.packet(0, 3, 61, p, option{2, u32(2 << 2)}).packet(0, 4, 61, p, option{2, u32(3 << 2)})
		n.old(0, 5, 5, 61, p).old(0, 0xffff, 6, 100, p)
		n.simple(61, p).simple(4000, bytesOf(1500, 2))
		n.block(5, n.options(make([]byte, 12), option{4, order.AppendUint64(nil, 100)}, option{5, order.AppendUint64(nil, 9)}))
		got, warned, err := fromBytes(t, n.b)
		if err != nil || len(got) != 8 {
			t.Fatalf("%d packets, %v", len(got), err)
		}
		i := got[0].Interface
		if i.Name != "eth0" || i.Description != "the front" || i.OS != "Linux" || i.Filter != "tcp port 80" || i.Snaplen != 1500 {
			t.Errorf("%+v", i)
		}
		for at, want := range []string{"[one two] 77 0 incoming 1", "[] 0 3 outgoing 4", "[] 0 0 unknown 3", "[] 0 0 unknown 2", "[] 0 5 unknown 0", "[] 0 0 unknown 0", "[] 0 0 unknown 0", "[] 0 0 unknown 0"} {
			k := got[at]
			if have := fmt.Sprint(k.Comments, " ", k.PacketID, " ", k.Dropped, " ", k.Direction, " ", k.Kind); have != want {
				t.Errorf("packet %d: %s, want %s", at+1, have, want)
			}
			if size := map[bool]int{true: 1500, false: 61}[at == 7]; len(k.data) != size || k.Truncated != (at == 5 || at == 7) || k.Time != int64(min(at+1, 6))*1000 {
				t.Errorf("packet %d: %+v", at+1, k.Record)
			}
		}
		if text := fmt.Sprint(warned); len(warned) != 3 || !strings.Contains(text, "9 packets of interface 0 eth0") || !strings.Contains(text, "3 packets before this one") || !strings.Contains(text, "bears no time") {
			t.Errorf("%v", warned)
		}
	}
}
