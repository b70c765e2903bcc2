package packet_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// withOptions builds a TCP segment with options, a multiple of four bytes long, in
// front of its payload. Its checksum is right.
func withOptions(t testing.TB, s packettest.Spec, options []byte) *packet.Packet {
	t.Helper()
	s.Payload = append(bytes.Clone(options), s.Payload...)
	p := packettest.Build(t, s)
	b := p.Bytes()
	tcp := 20
	if p.EtherType == packet.EtherIPv6 {
		tcp = 40
	}
	b[tcp+12] += byte(len(options) / 4 << 4)
	if !p.CsumPartial {
		sum := packettest.TransportChecksum(b)
		b[tcp+16], b[tcp+17] = byte(sum>>8), byte(sum)
	}
	if e := packet.Parse(p); e != packet.ParseOK {
		t.Fatal(e)
	}
	return p
}

const timestamps = "0101080a0000000100000002"

func options(t testing.TB, n int) []byte {
	all, err := hex.DecodeString(timestamps)
	if err != nil {
		t.Fatal(err)
	}
	for len(all) < n {
		all = append(all, 1)
	}
	return all[:n]
}

// TestTheOptionAboutTheClientHasTheLayoutThatServersRead compares bytes: kind 254,
// length, port, address.
func TestTheOptionAboutTheClientHasTheLayoutThatServersRead(t *testing.T) {
	for _, c := range []struct{ client, want string }{
		{"198.51.100.10", "fe089c40c633640a"},
		{"2001:db8::10", "fe149c4020010db8000000000000000000000010"},
	} {
		p := withOptions(t, packettest.Spec{Src: "192.0.2.200:5000", Dst: "192.0.2.1:80", Flags: packet.ACK, Payload: []byte("GET")}, options(t, 12))
		client := packet.MustParseAddr(c.client)
		if !packet.PushTOA(p, client, 40000) {
			t.Fatal("it had no room")
		}
		if got := hex.EncodeToString(p.Buf[p.L4+20 : p.L4+20+packet.TOALen(client)]); got != c.want {
			t.Errorf("the option is %s, want %s", got, c.want)
		}
		if err := packettest.Verify(p.Bytes()); err != nil {
			t.Error(err)
		}
		if !bytes.HasSuffix(p.Bytes(), append(options(t, 12), "GET"...)) {
			t.Errorf("options and payload became %x", p.Bytes()[20:])
		}
		if a, port, ok := p.TOA(); !ok || a != client || port != 40000 {
			t.Errorf("read back: %v port %d, %v", a, port, ok)
		}
	}
}

// TestTheOptionFitsOrNothingChanges: up to the 60 bytes of a TCP header.
func TestTheOptionFitsOrNothingChanges(t *testing.T) {
	for n := 0; n <= 40; n += 4 {
		for _, client := range []string{"198.51.100.10", "2001:db8::10"} {
			for _, v6 := range []bool{false, true} {
				s := packettest.Spec{Src: "192.0.2.200:5000", Dst: "192.0.2.1:80", Flags: packet.ACK, Payload: []byte("odd")}
				if v6 {
					s.Src, s.Dst = "[2001:db8::1]:5000", "[2001:db8::2]:80"
				}
				p := withOptions(t, s, options(t, n))
				before := bytes.Clone(p.Bytes())
				a := packet.MustParseAddr(client)
				fits := n+packet.TOALen(a) <= 40
				if got := packet.PushTOA(p, a, 1); got != fits {
					t.Errorf("%d bytes of options, client %s: %v, want %v", n, client, got, fits)
				}
				if !fits && !bytes.Equal(before, p.Bytes()) {
					t.Errorf("%d bytes of options, client %s: refused, but changed", n, client)
				}
				if err := packettest.Verify(p.Bytes()); err != nil {
					t.Errorf("%d bytes of options, client %s: %v", n, client, err)
				}
			}
		}
	}
}

// TestTheOptionKeepsChecksumsAsTheyAre: a wrong one stays wrong, an unfinished one
// unfinished, of super-frames, too: the device's sum comes out right.
func TestTheOptionKeepsChecksumsAsTheyAre(t *testing.T) {
	client := packet.MustParseAddr("198.51.100.10")
	spec := packettest.Spec{Src: "192.0.2.200:5000", Dst: "192.0.2.1:80", Flags: packet.ACK, Payload: bytes.Repeat([]byte("x"), 3001)}
	wrong := withOptions(t, spec, nil)
	wrong.Buf[wrong.L4+16]++
	packet.PushTOA(wrong, client, 1)
	if packettest.Verify(wrong.Bytes()) == nil {
		t.Error("a wrong checksum became right")
	}
	spec.Partial = true
	partial := withOptions(t, spec, nil)
	packet.PushTOA(partial, client, 1)
	if !packet.FinishChecksum(partial) {
		t.Fatal("not finished")
	}
	if err := packettest.Verify(partial.Bytes()); err != nil {
		t.Errorf("an unfinished checksum, finished: %v", err)
	}
	spec.GSOSize = 1000
	super := withOptions(t, spec, nil)
	packet.PushTOA(super, client, 1)
	var seg packet.Segmenter
	if err := seg.Reset(super); err != nil {
		t.Fatal(err)
	}
	var head [packet.MaxSegmentHeader]byte
	for range seg.Len() {
		header, payload := seg.Next(head[:])
		b := append(bytes.Clone(header), payload...)
		if err := packettest.Verify(b); err != nil {
			t.Error(err)
		}
		if a, _, ok := packet.TOA(b[40 : 20+int(b[32]>>4)*4]); !ok || a != client {
			t.Errorf("a segment of a super-frame names %v", a)
		}
	}
}

func TestOptionsThatNameNoClient(t *testing.T) {
	for _, c := range []struct {
		name, options string
		ok            bool
	}{
		{"none", "", false},
		{"others only", timestamps, false},
		{"behind the end of options", "00fe080050c6336401", false},
		{"behind others and an odd one", timestamps + "01" + "fe080050c6336401", true},
		{"cut short", "fe080050c63364", false},
		{"of another length", "fe060050c633", false},
		{"behind a length of 0", "0800fe080050c6336401", false},
		{"behind a length of 1", "0801fe080050c6336401", false},
		{"behind one that is too long", "08fffe080050c6336401", false},
		{"another kind", "c8080050c6336401", false},
	} {
		b, err := hex.DecodeString(c.options)
		if err != nil {
			t.Fatal(err)
		}
		a, port, ok := packet.TOA(b)
		if ok != c.ok || ok && (a.String() != "198.51.100.1" || port != 80) {
			t.Errorf("%s: %v port %d, %v", c.name, a, port, ok)
		}
	}
}

// FuzzTOA: whatever the options are, reading them does no harm; what is pushed in
// front of them is read back, the rest stays, and the checksum is as right as it
// was.
func FuzzTOA(f *testing.F) {
	f.Add([]byte{}, []byte("GET / HTTP/1.1"), false, uint16(40000))
	f.Add([]byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2}, []byte("x"), true, uint16(1))
	f.Add([]byte{254, 8, 0, 80, 1, 2, 3, 4}, []byte{}, false, uint16(0))
	f.Add([]byte{254, 255, 8, 0}, []byte{0}, true, uint16(65535))
	f.Fuzz(func(t *testing.T, opts, payload []byte, v6 bool, port uint16) {
		packet.TOA(opts)
		if len(payload) > 4000 {
			return
		}
		opts = opts[:min(len(opts), 40)/4*4]
		s := packettest.Spec{Src: "192.0.2.200:5000", Dst: "192.0.2.1:80", Flags: packet.ACK, Payload: payload}
		client := packet.MustParseAddr(fmt.Sprintf("198.51.100.%d", port%256))
		if v6 {
			s.Src, s.Dst = "[2001:db8::1]:5000", "[2001:db8::2]:80"
			client = packet.MustParseAddr("2001:db8::10")
		}
		p := withOptions(t, s, opts)
		p.TOA()
		fits := len(opts)+packet.TOALen(client) <= 40
		if packet.PushTOA(p, client, port) != fits {
			t.Fatalf("fits: %v, with %d bytes of options", fits, len(opts))
		}
		if err := packettest.Verify(p.Bytes()); err != nil {
			t.Fatal(err)
		}
		if fits {
			if a, got, ok := p.TOA(); !ok || a != client || got != port {
				t.Fatalf("read back %v port %d, %v", a, got, ok)
			}
			if !bytes.HasSuffix(p.Bytes(), append(bytes.Clone(opts), payload...)) {
				t.Fatal("options or payload changed")
			}
		}
	})
}
