package link_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"testing/synctest"

	"pktdirector/dataplane/link"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// Field case 2 to the letter: a frame that receive offload merged from three,
// with TCP timestamps, as it was captured: 20 bytes of IP header, 32 of TCP
// header, 4344 of data, don't-fragment, PSH.
func TestRunAMergedFrameOf4396Bytes(t *testing.T) {
	const seq, size, tcp = 0x7ffff000, 1448, 32
	synctest.Test(t, func(t *testing.T) {
		_, back, client, servers := pipes(link.PipeOptions{})
		front, client := link.NewPipe(frontInfo, client.Info(), link.PipeOptions{GSO: true, Checksums: true})
		d := newDirector(t, lvs.Route, 0, 1)
		stop := run(d, front, back)
		toDirector(client, frontInfo.MAC, packettest.Build(t, spec(packet.SYN, 0)))
		arrived(t, servers)
		before := d.Status()[0].Stats

		options := []byte{1, 1, 8, 10, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}
		data := make([]byte, 3*size)
		for i := range data {
			data[i] = byte(i * 7)
		}
		s := spec(packet.ACK|packet.PSH, 0)
		s.Seq, s.Payload, s.Partial, s.GSOSize = seq, append(options, data...), true, size
		big := packettest.Build(t, s)
		big.Bytes()[20+12] = tcp / 4 << 4 // the options are header, not data
		if big.Len() != 4396 || big.Bytes()[6] != 0x40 {
			t.Fatalf("the merged frame has %d bytes, flags %#x", big.Len(), big.Bytes()[6])
		}
		toDirector(client, frontInfo.MAC, big)
		got := arrived(t, servers)
		if len(got) != 3 {
			t.Fatalf("%d frames at the server, want 3", len(got))
		}
		for i, p := range got {
			b := p.Bytes()
			if err := packettest.Verify(b); err != nil {
				t.Errorf("frame %d: %v", i, err)
			}
			if n := binary.BigEndian.Uint16(b[2:]); n != 1500 || len(b) != 1500 || b[6] != 0x40 {
				t.Errorf("frame %d: IP length %d, %d bytes, flags %#x; want 1500 and don't-fragment", i, n, len(b), b[6])
			}
			if at := binary.BigEndian.Uint32(b[24:]); at != uint32(seq+i*size) {
				t.Errorf("frame %d: sequence number %#x, want %#x", i, at, seq+i*size)
			}
			if psh := b[33]&packet.PSH != 0; psh != (i == 2) || b[33]&packet.ACK == 0 {
				t.Errorf("frame %d: flags %#x", i, b[33])
			}
			if !bytes.Equal(b[40:52], options) || !bytes.Equal(b[52:], data[i*size:(i+1)*size]) {
				t.Errorf("frame %d has other options or data", i)
			}
		}
		if told := arrived(t, client); len(told) != 0 {
			t.Errorf("%d packets went back to the client, want no ICMP", len(told))
		}
		after := d.Status()[0].Stats
		if n, bytes := after.InPkts-before.InPkts, after.InBytes-before.InBytes; n != 3 || bytes != 4500 {
			t.Errorf("counted %d packets of %d bytes, want 3 of 4500", n, bytes)
		}
		if s := back.Stats(); s.Segmented != 1 {
			t.Errorf("%+v, want one frame segmented", s)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
