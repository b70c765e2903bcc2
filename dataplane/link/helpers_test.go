package link_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// MACs of the test's interfaces.
var (
	clientMAC = packet.MAC{2, 0, 0, 0, 1, 2}
	leftMAC   = packet.MAC{2, 0, 0, 0, 1, 1}
	rightMAC  = packet.MAC{2, 0, 0, 0, 2, 1}
	serverMAC = packet.MAC{2, 0, 0, 0, 2, 2}
)

func newBatch(n int) []*packet.Packet {
	batch := make([]*packet.Packet, n)
	for i := range batch {
		batch[i] = new(packet.Packet)
	}
	return batch
}

// udpFrame returns an Ethernet frame of a UDP/IPv4 packet of size bytes that
// carries mark, to the middle's left interface.
func udpFrame(mark uint32, size int) []byte {
	b := make([]byte, 14+size)
	copy(b, leftMAC[:])
	copy(b[6:], clientMAC[:])
	b[12], b[13] = 8, 0
	ip := b[14:]
	ip[0], ip[2], ip[3], ip[8], ip[9] = 0x45, byte(size>>8), byte(size), 64, 17
	copy(ip[12:], []byte{10, 1, 0, 2, 10, 1, 0, 3})
	packet.PutIPv4Checksum(ip[:20])
	udp := ip[20:]
	udp[0], udp[1], udp[2], udp[3], udp[4], udp[5] = 1, 1, 2, 2, byte((size-20)>>8), byte(size-20)
	for i := 8; i+4 <= len(udp); i += 4 {
		udp[i], udp[i+1], udp[i+2], udp[i+3] = byte(mark>>24), byte(mark>>16), byte(mark>>8), byte(mark)
	}
	return b
}

func isUDP(p *packet.Packet) bool {
	return p.EtherType == packet.EtherIPv4 && p.Len() > 28 && p.Buf[p.Start+9] == 17
}

// leakCheck fails the test when goroutines outlive it. Call it first.
func leakCheck(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// tagged puts an 802.1Q tag into an Ethernet frame.
func tagged(frame []byte, tci uint16) []byte {
	return slices.Concat(frame[:12], []byte{0x81, 0, byte(tci >> 8), byte(tci)}, frame[12:])
}

// mark reads what udpFrame wrote into the payload.
func mark(p *packet.Packet) uint32 { return binary.BigEndian.Uint32(p.Buf[p.Start+28:]) }
