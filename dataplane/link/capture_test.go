package link_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// pcapFile returns a pcap file of the frames; cut ones lost their second half.
func pcapFile(t testing.TB, kind layers.LinkType, cut bool, frames ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriterNanos(&b)
	if err := w.WriteFileHeader(65536, kind); err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(1, int64(i)), CaptureLength: len(f), Length: len(f)}
		if cut {
			f = f[:len(f)/2]
			ci.CaptureLength = len(f)
		}
		if err := w.WritePacket(ci, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func pcapngFile(t testing.TB, kind layers.LinkType, frames ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, kind)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, int64(i)), CaptureLength: len(f), Length: len(f)}, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readAll(t testing.TB, l *link.Capture) []*packet.Packet {
	t.Helper()
	var all []*packet.Packet
	for {
		batch := newBatch(2)
		n, err := l.Readers()[0].Read(batch)
		all = append(all, batch[:n]...)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Field case 22: packets of a file stay whole however much is read after.
func TestCapturePacketsStay(t *testing.T) {
	var frames, bare [][]byte
	for i := range 7 {
		f := udpFrame(uint32(i), 100+50*i)
		frames, bare = append(frames, f), append(bare, f[14:])
	}
	for name, file := range map[string][]byte{
		"pcap, Ethernet":   pcapFile(t, layers.LinkTypeEthernet, false, frames...),
		"pcapng, Ethernet": pcapngFile(t, layers.LinkTypeEthernet, frames...),
		"pcap, raw IP":     pcapFile(t, layers.LinkTypeRaw, false, bare...),
		"pcapng, raw IP":   pcapngFile(t, layers.LinkTypeRaw, bare...),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := link.NewCapture(bytes.NewReader(file), nil, dataplane.LinkInfo{Name: "file"})
			if err != nil {
				t.Fatal(err)
			}
			got := readAll(t, l)
			if len(got) != len(bare) {
				t.Fatalf("%d packets, want %d", len(got), len(bare))
			}
			for i, p := range got {
				if !bytes.Equal(p.Bytes(), bare[i]) || p.EtherType != packet.EtherIPv4 || p.Class != packet.ToUs || p.Start < packet.Headroom || p.Truncated {
					t.Errorf("packet %d: %+v", i, p)
				}
			}
		})
	}
}

func TestCaptureMarksCutPackets(t *testing.T) {
	l, err := link.NewCapture(bytes.NewReader(pcapFile(t, layers.LinkTypeEthernet, true, udpFrame(1, 200))), nil, dataplane.LinkInfo{})
	if err != nil {
		t.Fatal(err)
	}
	got := readAll(t, l)
	if len(got) != 1 || !got[0].Truncated || l.Stats().RxTruncated != 1 {
		t.Errorf("%+v, %+v: want one truncated packet", got, l.Stats())
	}
}

// Field case 21: tags go into the metadata, and into the file that is written.
func TestCaptureVLAN(t *testing.T) {
	file := pcapFile(t, layers.LinkTypeEthernet, false, udpFrame(0, 60), tagged(udpFrame(100, 60), 100), tagged(udpFrame(200, 60), 200))
	var out bytes.Buffer
	info := dataplane.LinkInfo{Name: "trunk", MAC: leftMAC, VLAN: 100}
	l, err := link.NewCapture(bytes.NewReader(file), &out, info)
	if err != nil {
		t.Fatal(err)
	}
	got := readAll(t, l)
	if len(got) != 1 || got[0].VLAN != 100 || !got[0].Tagged || mark(got[0]) != 100 || l.Stats().RxOtherVLAN != 2 {
		t.Fatalf("%+v, %+v: want the frame of VLAN 100 alone", got, l.Stats())
	}
	p := got[0]
	p.DstMAC, p.Tagged = serverMAC, false
	l.NewWriter().Write([]*packet.Packet{p})
	if err := l.Close(); err != nil || !p.Sent {
		t.Fatalf("sent %t, Close %v", p.Sent, err)
	}
	r, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	data, ci, err := r.ReadPacketData()
	if err != nil {
		t.Fatal(err)
	}
	want := tagged(udpFrame(100, 60), 100)
	copy(want, serverMAC[:])
	copy(want[6:], leftMAC[:])
	if !slices.Equal(data, want) || !ci.Timestamp.Equal(time.Unix(1, 1)) {
		t.Errorf("written at %v:\n%x, want\n%x", ci.Timestamp, data, want)
	}
}

func TestCaptureWritesSegments(t *testing.T) {
	var out bytes.Buffer
	l, err := link.NewCapture(bytes.NewReader(pcapFile(t, layers.LinkTypeRaw, false)), &out, dataplane.LinkInfo{Layer3: true})
	if err != nil {
		t.Fatal(err)
	}
	l.NewWriter().Write([]*packet.Packet{tcpPacket(t, 4344, true, 1448), tcpPacket(t, 10, true, 0)})
	l.Close()
	r, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for {
		data, _, err := r.ReadPacketData()
		if err != nil {
			break
		}
		sizes = append(sizes, len(data))
		var p packet.Packet
		p.Reset(data, 0, len(data))
		p.EtherType = packet.EtherIPv4
		if !verifies(&p) {
			t.Errorf("packet of %d bytes with a wrong checksum", len(data))
		}
	}
	if !slices.Equal(sizes, []int{1488, 1488, 1488, 50}) {
		t.Errorf("packets of %d bytes", sizes)
	}
}

func TestCaptureRefuses(t *testing.T) {
	bigHeader := pcapFile(t, layers.LinkTypeEthernet, false, udpFrame(1, 60))
	binary.LittleEndian.PutUint32(bigHeader[24+8:], 300<<20)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"an empty file":          {nil, "empty"},
		"a text":                 {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "neither"},
		"radio frames":           {pcapFile(t, layers.LinkTypeIEEE80211Radio, false, udpFrame(1, 60)), "radiotap (127)"},
		"a record of 300 MB":     {bigHeader, "packet 1"},
		"a file cut in a record": {pcapFile(t, layers.LinkTypeEthernet, false, udpFrame(1, 60), udpFrame(2, 60))[:24+16+74+16+20], "packet 2"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := link.NewCapture(bytes.NewReader(c.file), nil, dataplane.LinkInfo{Name: "file"})
			for err == nil {
				_, err = l.Readers()[0].Read(newBatch(4))
			}
			if !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "link file: ") {
				t.Errorf("error %q, want one that says %q", err, c.want)
			}
		})
	}
}

// A file that announces more than it holds must not cost memory.
func TestAnnouncedLengthsCostNoMemory(t *testing.T) {
	frame := udpFrame(7, 60)
	lie := func(file []byte, at int) []byte {
		copy(file[at:], []byte{0, 0, 0, 0xd0})
		return file
	}
	for name, file := range map[string][]byte{
		"pcap":                  append(lie(onePcap(frame)[:24], 16), lie(lie(onePcap(frame)[24:], 8), 12)...),
		"pcapng, a packet":      lie(onePcapng(frame), 28+20+20),
		"pcapng, a whole block": lie(onePcapng(frame), 28+20+4),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l, err := link.NewCapture(bytes.NewReader(file), nil, dataplane.LinkInfo{Name: "file"})
		if err == nil {
			_, err = l.Readers()[0].Read(newBatch(1))
		}
		runtime.ReadMemStats(&after)
		if err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}

// A cooked capture of all interfaces says for whom each packet was, but for the MAC.
func TestCaptureOfCookedPackets(t *testing.T) {
	ip := udpFrame(1, 60)[14:]
	var records []byte
	head := []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 113, 0, 0, 0}
	for kind := range byte(5) { // PACKET_HOST and so on
		n := byte(16 + len(ip))
		records = append(records, 1, 0, 0, 0, 0, 0, 0, 0, n, 0, 0, 0, n, 0, 0, 0)
		records = append(append(records, 0, kind, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0), ip...)
	}
	l, err := link.NewCapture(bytes.NewReader(append(head, records...)), nil, dataplane.LinkInfo{Name: "any", MAC: leftMAC})
	if err != nil {
		t.Fatal(err)
	}
	var got []packet.Class
	for _, p := range readAll(t, l) {
		got = append(got, p.Class)
		if !bytes.Equal(p.Bytes(), ip) || p.EtherType != packet.EtherIPv4 || p.SrcMAC != (packet.MAC{2, 0, 0, 0, 0, 1}) {
			t.Errorf("%+v", p)
		}
	}
	if want := []packet.Class{packet.ToUs, packet.Broadcasted, packet.Multicasted, packet.OtherHost, packet.Outgoing}; !slices.Equal(got, want) {
		t.Errorf("classes %v, want %v", got, want)
	}
}

// Of two tags the outermost is the link's, the other stays in the packet.
func TestCaptureOfTwoTags(t *testing.T) {
	frame := tagged(tagged(udpFrame(1, 60), 100), 200)
	l, err := link.NewCapture(bytes.NewReader(onePcap(frame)), nil, dataplane.LinkInfo{Name: "trunk"})
	if err != nil {
		t.Fatal(err)
	}
	got := readAll(t, l)
	if len(got) != 1 || got[0].VLAN != 200 || got[0].EtherType != packet.EtherVLAN || !bytes.Equal(got[0].Bytes(), frame[18:]) {
		t.Errorf("%+v", got)
	}
}
