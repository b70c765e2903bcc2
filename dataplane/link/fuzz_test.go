package link_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// onePcap and onePcapng are one Ethernet frame as either kind of file.
func onePcap(frame []byte) []byte {
	b := []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0}
	n := byte(len(frame))
	b = append(b, 1, 0, 0, 0, 0, 0, 0, 0, n, 0, 0, 0, n, 0, 0, 0)
	return append(b, frame...)
}

func onePcapng(frame []byte) []byte {
	b := []byte{0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 28, 0, 0, 0}
	b = append(b, 1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0)
	padded := (len(frame) + 3) / 4 * 4
	total := byte(32 + padded)
	b = append(b, 6, 0, 0, 0, total, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(len(frame)), 0, 0, 0, byte(len(frame)), 0, 0, 0)
	b = append(append(b, frame...), make([]byte, padded-len(frame))...)
	return append(b, total, 0, 0, 0)
}

// FuzzCapture reads capture files: they end, with io.EOF or an error that says
// where, and what was read is written again whole.
func FuzzCapture(f *testing.F) {
	frame := udpFrame(7, 60)
	for _, file := range [][]byte{onePcap(frame), onePcapng(frame), onePcap(tagged(frame, 100)), {0x0a, 0x0d, 0x0d, 0x0a}, {0xa1, 0xb2, 0xc3, 0xd4}, nil} {
		f.Add(file, uint16(0), false)
		f.Add(file, uint16(100), true)
	}
	if more, _ := filepath.Glob("testdata/*.pcap*"); len(more) > 0 {
		for _, name := range more {
			if b, err := os.ReadFile(name); err == nil && len(b) < 1<<14 {
				f.Add(b, uint16(0), false)
			}
		}
	}
	f.Fuzz(func(t *testing.T, file []byte, vlan uint16, layer3 bool) {
		if len(file) > 1<<15 {
			return
		}
		info := dataplane.LinkInfo{Name: "file", MTU: 1500, VLAN: vlan & 0x0fff, Layer3: layer3}
		var again bytes.Buffer
		l, err := link.NewCapture(bytes.NewReader(file), &again, info)
		if err != nil {
			return
		}
		written := uint64(0)
		for rounds := 0; ; rounds++ {
			if rounds > len(file) {
				t.Fatal("the file does not end")
			}
			batch := newBatch(4)
			n, err := l.Readers()[0].Read(batch)
			if err != nil {
				break
			}
			for _, p := range batch[:n] {
				if p.Start < packet.Headroom || p.End > len(p.Buf) || p.Start > p.End {
					t.Fatalf("a packet from %d to %d in %d bytes", p.Start, p.End, len(p.Buf))
				}
			}
			l.NewWriter().Write(batch[:n])
			for _, p := range batch[:n] {
				if p.Sent {
					written++
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		back, err := link.NewCapture(&again, nil, dataplane.LinkInfo{Name: "again", Layer3: layer3})
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		read := uint64(0)
		for {
			batch := newBatch(4)
			n, err := back.Readers()[0].Read(batch)
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("what was written cannot be read: %v", err)
			}
			read += uint64(n)
		}
		if read != written {
			t.Fatalf("%d packets were written and %d read again", written, read)
		}
	})
}

// FuzzVnet reads the kernel's offload headers and writes them again: whatever
// they say, Parse refuses what contradicts the packet, and what it takes is
// written as it was.
func FuzzVnet(f *testing.F) {
	f.Add([]byte{1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0}, udpFrame(1, 60)[14:])
	f.Add([]byte{1, 0, 0, 0, 0, 0, 34, 0, 6, 0}, udpFrame(1, 60)[14:])
	f.Add([]byte{0, 5, 42, 0, 8, 0, 0, 0, 0, 0}, udpFrame(1, 60)[14:])
	f.Fuzz(func(t *testing.T, header, raw []byte) {
		if len(header) < link.VnetLen || len(raw) > 1<<16 {
			return
		}
		header = header[:link.VnetLen]
		const ether = 14
		buf := append(make([]byte, packet.Headroom), raw...)
		p := new(packet.Packet)
		p.Reset(buf, packet.Headroom, len(raw))
		p.EtherType = packet.EtherIPv4
		link.ReadVnet(p, header, p.Start-ether)
		if packet.Parse(p) != packet.ParseOK {
			return
		}
		var out, twice [link.VnetLen]byte
		link.PutVnet(out[:], p, ether)
		q := *p
		q.CsumPartial, q.CsumStart, q.CsumOffset, q.GSO, q.GSOSize, q.GSOECN = false, 0, 0, packet.GSONone, 0, false
		link.ReadVnet(&q, out[:], q.Start-ether)
		link.PutVnet(twice[:], &q, ether)
		if out != twice {
			t.Fatalf("%x was written, read and written as %x", out, twice)
		}
		if p.GSO != packet.GSONone {
			var seg packet.Segmenter
			if seg.Reset(p) != nil {
				return
			}
			var room [packet.MaxSegmentHeader]byte
			for n := 0; ; n++ {
				h, b := seg.Next(room[:])
				if len(h)+len(b) == 0 {
					break
				}
				if n > len(raw) {
					t.Fatal("the segments do not end")
				}
			}
		}
	})
}
