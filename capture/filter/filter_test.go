package filter_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pktdirector/capture/filter"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
	"pktdirector/testbed/nstest"
)

// sample is a packet with its frame, as a capture file has it.
type sample struct {
	filter.Packet
	frame []byte
}

func newSample(src, dst byte, kind packet.EtherType, data []byte) sample {
	s := sample{Packet: filter.Packet{
		SrcMAC: packet.MAC{2, 0, 0, 0, 0, src}, DstMAC: packet.MAC{2, 0, 0, 0, 0, dst}, HasMAC: true, EtherType: kind, Data: data, Len: 14 + len(data),
	}}
	if dst == 0xff {
		s.DstMAC = packet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	s.frame = append(append(append(s.frame, s.DstMAC[:]...), s.SrcMAC[:]...), byte(kind>>8), byte(kind))
	s.frame = append(s.frame, data...)
	return s
}

// samples are packets of many kinds.
func samples(t testing.TB) (all []sample) {
	add := func(spec packettest.Spec) []byte {
		p := packettest.Build(t, spec)
		all = append(all, newSample(byte(1+len(all)%3), byte(4+len(all)%3), p.EtherType, p.Bytes()))
		return p.Bytes()
	}
	var v4, v6 []byte
	for _, ends := range [][2]string{
		{"198.51.100.7:40000", "192.0.2.10:80"}, {"192.0.2.10:80", "198.51.100.7:40000"}, {"10.2.0.1:8080", "198.51.100.7:40000"},
		{"198.51.100.7:53", "10.2.0.1:443"}, {"[2001:db8::7]:40000", "[2001:db8:1::10]:80"}, {"[2001:db8:1::10]:443", "[2001:db8::7]:53"},
	} {
		for _, flags := range []uint8{packet.SYN, packet.ACK, packet.FIN | packet.ACK, packet.RST} {
			b := add(packettest.Spec{Src: ends[0], Dst: ends[1], Flags: flags, Payload: make([]byte, int(flags)*9), TTL: 60 + flags})
			if ends[0][0] == '[' {
				v6 = b
			} else {
				v4 = b
			}
		}
		add(packettest.Spec{Src: ends[0], Dst: ends[1], UDP: true, Payload: make([]byte, 30)})
	}
	edited := func(from []byte, kind packet.EtherType, edit func([]byte)) {
		b := append([]byte(nil), from...)
		edit(b)
		all = append(all, newSample(1, 4, kind, b))
	}
	for _, proto := range []byte{1, 2, 4, 47, 50, 58, 112, 132} {
		edited(v4, packet.EtherIPv4, func(b []byte) { b[9] = proto; b[20] = 8 })
		edited(v6, packet.EtherIPv6, func(b []byte) { b[6] = proto; b[40] = 135 })
	}
	edited(v4, packet.EtherIPv4, func(b []byte) { b[7] = 100 })                                                                     // a later fragment
	edited(v4, packet.EtherIPv4, func(b []byte) { b[6] = 0x20 })                                                                    // a first one
	edited(v4, packet.EtherIPv4, func(b []byte) { copy(b[16:], []byte{224, 0, 0, 5}) })                                             // multicast
	edited(v6, packet.EtherIPv6, func(b []byte) { b[24] = 0xff })                                                                   // multicast
	edited(v6, packet.EtherIPv6, func(b []byte) { b[6] = 44; b[40] = 6 })                                                           // fragment header
	edited(v6, packet.EtherIPv6, func(b []byte) { b[6] = 0; b[40] = 6 })                                                            // hop-by-hop
	edited(append([]byte{0x46}, append(v4[1:20:20], append(make([]byte, 4), v4[20:]...)...)...), packet.EtherIPv4, func([]byte) {}) // IP options
	arp := make([]byte, 28)
	binary.BigEndian.PutUint16(arp[0:], 1)
	binary.BigEndian.PutUint16(arp[2:], 0x800)
	arp[4], arp[5], arp[7] = 6, 4, 1
	copy(arp[14:], []byte{198, 51, 100, 7})
	copy(arp[24:], []byte{192, 0, 2, 10})
	all = append(all, newSample(1, 0xff, packet.EtherARP, arp), newSample(2, 4, 0x88cc, make([]byte, 46)), newSample(2, 5, packet.EtherIPv4, v4[:21]), newSample(2, 5, packet.EtherIPv4, v4[:33]))
	return all
}

// atoms are expressions that libpcap knows, too.
func atoms() []string {
	return []string{
		"ip", "ip6", "arp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "esp", "vrrp", "pim",
		"host 198.51.100.7", "src host 198.51.100.7", "dst 192.0.2.10", "src and dst 192.0.2.10", "src or dst host 10.2.0.1", "ip host 192.0.2.10", "arp host 192.0.2.10",
		"host 2001:db8::7", "dst host 2001:db8:1::10", "ip6 host 2001:db8::7", "net 2001:db8:1::/48", "src net 2001:db8::/32",
		"net 198.51.100.0/24", "net 198.51.100", "dst net 10", "net 10.2.0.0 mask 255.255.0.0", "src net 0.0.0.0/0",
		"port 80", "src port 80", "tcp port 443", "udp dst port 80", "sctp port 80", "port 53 or 443", "tcp port 80 or 8080", "portrange 80-443", "tcp src portrange 8000-9000",
		"ip proto 47", "ip proto \\tcp", "proto 6", "ip6 proto 6", "ip6 proto \\udp", "proto \\sctp", "ether proto 0x800", "ether proto \\arp",
		"ether host 02:00:00:00:00:01", "ether src 02:00:00:00:00:02", "ether dst 02:00:00:00:00:04", "ether broadcast", "broadcast", "ether multicast", "multicast", "ip multicast", "ip6 multicast",
		"less 60", "greater 100", "len > 80", "len - 14 = 40", "tcp[tcpflags] & tcp-syn != 0", "tcp[13] = 2", "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0", "ip[8] < 64", "ip[0] & 0xf != 5", "ip[6:2] & 0x1fff = 0",
		"tcp[2:2] = 80", "udp[4:2] > 20", "icmp[icmptype] = icmp-echo", "icmp6[0] = icmp6-neighborsolicit", "ip6[6] = 6", "arp[7] = 1", "ether[0] & 1 = 0", "ether[12:2] = 0x86dd",
		"ip[2:2] - ((ip[0] & 0xf) << 2) > 20", "tcp[12] >> 4 * 4 = 0", "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0", "tcp[400] = 0", "1 + 2 * 3 = 7", "ip[8] % 7 = 3", "ip[8] ^ 60 = 0x02", "5 < -1", "ip[9] = 6 | 17",
	}
}

// expressions are the atoms, and some of them joined.
func expressions(n int, seed uint64) []string {
	list, r := atoms(), rand.New(rand.NewPCG(seed, 1))
	pick := func() string {
		s := atoms()[r.IntN(len(atoms()))]
		switch r.IntN(6) {
		case 0:
			return "not " + s
		case 1:
			return "! (" + s + ")"
		case 2:
			return "((" + s + "))"
		}
		return s
	}
	for range n {
		s := pick()
		for range 1 + r.IntN(3) {
			s += []string{" and ", " or ", " && ", " || "}[r.IntN(4)] + pick()
		}
		list = append(list, s)
	}
	return list
}

// pcapOf writes packets as a pcap file.
func pcapOf(all []sample) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = append(b, 2, 0, 4, 0)
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint32(b, 262144)
	b = binary.LittleEndian.AppendUint32(b, 1)
	for i, s := range all {
		b = binary.LittleEndian.AppendUint32(b, uint32(i)) // its number is its time
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s.frame)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s.frame)))
		b = append(b, s.frame...)
	}
	return b
}

// chosen reads the numbers of the packets that tcpdump wrote.
func chosen(t *testing.T, b []byte, n int) []bool {
	t.Helper()
	list := make([]bool, n)
	for at := 24; at+16 <= len(b); {
		list[binary.LittleEndian.Uint32(b[at:])] = true
		at += 16 + int(binary.LittleEndian.Uint32(b[at+8:]))
	}
	return list
}

// TestTcpdumpChoosesTheSame packets by every expression.
func TestTcpdumpChoosesTheSame(t *testing.T) {
	tcpdump, err := exec.LookPath("tcpdump")
	if err != nil {
		nstest.Require(t, "tcpdump is missing: install it")
	}
	all := samples(t)
	file := filepath.Join(t.TempDir(), "all.pcap")
	if err := os.WriteFile(file, pcapOf(all), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 200
	if testing.Short() {
		n = 20
	}
	for _, text := range expressions(n, 7) {
		f, err := filter.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var complaint strings.Builder
		// Unoptimised: libpcap's optimiser leaves out reads whose result does not
		// matter, and with them that they are behind the packet's end.
		c := exec.Command(tcpdump, "-O", "-r", file, "-w", "-", text)
		c.Stderr = &complaint
		out, err := c.Output()
		if err != nil {
			t.Errorf("tcpdump %s: %v: %s", text, err, complaint.String())
			continue
		}
		for i, want := range chosen(t, out, len(all)) {
			if got := f.Match(&all[i].Packet); got != want {
				t.Errorf("%s: packet %d chosen: %v, by tcpdump: %v\n%x", text, i, got, want, all[i].frame)
			}
		}
	}
}

func TestRefusalsNameTheWord(t *testing.T) {
	for text, want := range map[string]string{
		"host":                              "at its end: an address, net, port or number must stand here",
		"host www.example.com":              `at byte 6, "www.example.com": not an address; names of hosts and nets are not looked up`,
		"tcp port http":                     `at byte 10, "http": no port`,
		"tcp port 80 443":                   `at byte 13, "443": "and" or "or" may stand here`,
		"tcp and":                           "at its end: something must stand here",
		"(tcp":                              `at its end: ")" must stand here`,
		"tcp[13":                            `"]" must stand here`,
		"tcp[13:3] = 1":                     "1, 2 or 4 bytes can be read",
		"tcp[13] &":                         "at its end: a number must stand here",
		"tcp[13]":                           "a comparison must stand here",
		"net 10.0.0.1/8":                    "bits behind the net's length are set: write 10.0.0.0/8",
		"net 10.0.0.0 mask 255.0.1.0":       "a netmask with gaps",
		"port 80000":                        `"80000": no port`,
		"icmp port 80":                      "icmp has no ports",
		"tcp host 192.0.2.1":                "tcp has ports and no addresses",
		"ip6 host 192.0.2.1":                "is no address of ip6",
		"mpls 5":                            `"mpls": not taken here: labels are not read`,
		"ip broadcast":                      "not taken here: which addresses",
		"ip protochain 6":                   "not taken here",
		"gateway 192.0.2.1":                 "not taken here",
		"vlan 5000":                         "no VLAN",
		"ether host 192.0.2.1":              "not a MAC address",
		"ether":                             "ether host, ether proto",
		"len / 0 = 1":                       "division by zero",
		"ip[0] << 40 = 1":                   "a shift by more than 31 bits",
		"http[0] = 1":                       "no header of that name",
		"80":                                "not an address or net; a port is written: port 80",
		"weather":                           "not a word of a filter",
		"tcp port 80 /* */":                 `"/"`,
		strings.Repeat("not ", 100) + "tcp": "nested more than 64 deep",
		strings.Repeat("x", 5000):           "at most 4096",
	} {
		f, err := filter.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || f != nil {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestWhatTcpdumpHasOtherwise: tags need no word, and there are directions.
func TestWhatTcpdumpHasOtherwise(t *testing.T) {
	p := samples(t)[0].Packet
	p.Tagged, p.VLAN, p.Outbound = true, 0x2000|7, true
	for text, want := range map[string]bool{
		"": true, "tcp port 80": true, "192.0.2.10": true, "proto \\icmp6": false, "vlan": true, "vlan 7": true, "vlan 8": false, "vlan 7 and host 192.0.2.10": true, "outbound": true, "inbound": false, "not inbound and tcp": true,
	} {
		f, err := filter.Parse(text)
		if err != nil || f.Match(&p) != want || f.String() != text {
			t.Errorf("%q: %v, %v", text, f.Match(&p), err)
		}
	}
	raw := filter.Packet{EtherType: p.EtherType, Data: p.Data, Len: len(p.Data)}
	for text, want := range map[string]bool{"tcp port 80": true, "ether host 02:00:00:00:00:01": false, "ether multicast": false, "ether[0] = 0": false, "not ether[0] = 0": true} {
		if f, err := filter.Parse(text); err != nil || f.Match(&raw) != want {
			t.Errorf("without an Ethernet header, %q: %v, %v", text, f.Match(&raw), err)
		}
	}
}

func TestMatchingAllocatesNothing(t *testing.T) {
	all := samples(t)
	for _, text := range atoms() {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10, func() {
			for i := range all {
				f.Match(&all[i].Packet)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// FuzzFilter: an expression is refused by an error that begins with "filter: ", or
// chooses the same of packets twice; what is cut short is no trouble.
func FuzzFilter(f *testing.F) {
	for _, text := range append(atoms(), "(tcp or udp) and not port 80 or 443", "vlan 7 and inbound", "len - -1 = (2)") {
		f.Add(text, []byte{0x45})
	}
	all := samples(f)
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		x, err := filter.Parse(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "filter: ") || x != nil {
				t.Errorf("%q: %v, %v", text, x, err)
			}
			return
		}
		for i := range all {
			p := all[i].Packet
			first := x.Match(&p)
			if x.Match(&p) != first {
				t.Errorf("%q: not the same twice", text)
			}
			p.Data = data
			x.Match(&p)
		}
		again, err := filter.Parse("(" + text + ")")
		if text != "" && x != nil && len(text) < 4000 {
			if err != nil {
				if !strings.Contains(err.Error(), "nested more than") {
					t.Errorf("%q in parentheses: %v", text, err)
				}
				return
			}
			for i := range all {
				if again.Match(&all[i].Packet) != x.Match(&all[i].Packet) {
					t.Errorf("%q in parentheses chooses others", text)
				}
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	all := samples(b)
	f, err := filter.Parse("tcp port 80 and host 198.51.100.7 and tcp[tcpflags] & tcp-syn != 0")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f.Match(&all[0].Packet)
	}
}
