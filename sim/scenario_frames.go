package sim

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strings"

	"pktdirector/packet"
)

// What every generated packet has: IPv4 TTL 64, TOS 0, DF, id 1; TCP sequence
// number 1000, acknowledgement 2000 where A is set, window 64240, no options; one
// byte "x" in UDP; SCTP verification tag 7 and one chunk of 16 zero bytes.
const (
	packetTTL  = 64
	packetID   = 1
	tcpSeq     = 1000
	tcpAck     = 2000
	tcpWindow  = 64240
	udpPayload = "x"
	sctpTag    = 7
	chunkSize  = 4 + 16
)

// flagLetters are the letters of TCP's flags, from the lowest bit.
const flagLetters = "FSRPAUEC"

func protoOf(name string) (packet.Proto, error) {
	switch name {
	case "tcp":
		return packet.TCP, nil
	case "udp":
		return packet.UDP, nil
	case "sctp":
		return packet.SCTP, nil
	}
	return 0, fmt.Errorf("protocol %q is not known: write tcp, udp or sctp", name)
}

func flagsOf(letters string) (uint8, error) {
	var flags uint8
	for _, letter := range letters {
		bit := strings.IndexRune(flagLetters, letter)
		if bit < 0 {
			return 0, fmt.Errorf("flag %q is not known: the letters are %s", letter, flagLetters)
		}
		flags |= 1 << bit
	}
	return flags, nil
}

func flagNames(flags uint8) string {
	var b strings.Builder
	for i := range len(flagLetters) {
		if flags&(1<<i) != 0 {
			b.WriteByte(flagLetters[i])
		}
	}
	return b.String()
}

// buildPacket makes the packet of a pkt or bulk event.
func buildPacket(e *Event, src, dst string) (*packet.Packet, error) {
	proto, err := protoOf(e.Proto)
	if err != nil {
		return nil, err
	}
	from, err := netip.ParseAddrPort(src)
	if err != nil {
		return nil, fmt.Errorf("src: %w", err)
	}
	to, err := netip.ParseAddrPort(dst)
	if err != nil {
		return nil, fmt.Errorf("dst: %w", err)
	}
	for _, a := range []netip.Addr{from.Addr(), to.Addr()} {
		if a.Zone() != "" || a.Is4In6() {
			return nil, fmt.Errorf("%s is no address of a packet: write it without a zone, and an IPv4 address as 192.0.2.1", a)
		}
	}
	if from.Addr().Is4() != to.Addr().Is4() {
		return nil, fmt.Errorf("src %s and dst %s are of different IP versions", src, dst)
	}
	f := packet.Flow{Src: packet.AddrFrom(from.Addr()), SrcPort: from.Port(), Dst: packet.AddrFrom(to.Addr()), DstPort: to.Port(), Proto: proto}
	transport, err := buildTransport(e, &f)
	if err != nil {
		return nil, err
	}
	return newPacket(buildIP(&f, transport), f.Src.Is4()), nil
}

func newPacket(raw []byte, v4 bool) *packet.Packet {
	buf := make([]byte, packet.Headroom+len(raw))
	copy(buf[packet.Headroom:], raw)
	p := &packet.Packet{}
	p.Reset(buf, packet.Headroom, len(raw))
	p.EtherType = packet.EtherIPv6
	if v4 {
		p.EtherType = packet.EtherIPv4
	}
	return p
}

func buildIP(f *packet.Flow, transport []byte) []byte {
	be := binary.BigEndian
	if !f.Src.Is4() {
		b := make([]byte, packet.IPv6HeaderLen, packet.IPv6HeaderLen+len(transport))
		b[0] = 6 << 4
		be.PutUint16(b[4:], uint16(len(transport)))
		b[6], b[7] = byte(f.Proto), packetTTL
		f.Src.Put16(b[8:])
		f.Dst.Put16(b[24:])
		return append(b, transport...)
	}
	b := make([]byte, packet.IPv4HeaderLen, packet.IPv4HeaderLen+len(transport))
	b[0] = 4<<4 | packet.IPv4HeaderLen/4
	be.PutUint16(b[2:], uint16(packet.IPv4HeaderLen+len(transport)))
	be.PutUint16(b[4:], packetID)
	b[6] = 0x40 // don't fragment
	b[8], b[9] = packetTTL, byte(f.Proto)
	f.Src.Put4(b[12:])
	f.Dst.Put4(b[16:])
	packet.PutIPv4Checksum(b)
	return append(b, transport...)
}

func buildTransport(e *Event, f *packet.Flow) ([]byte, error) {
	be := binary.BigEndian
	var b []byte
	sumAt := -1
	switch f.Proto {
	case packet.TCP:
		b = make([]byte, packet.TCPHeaderLen)
		if e.Flags != nil {
			var err error
			if b[13], err = flagsOf(*e.Flags); err != nil {
				return nil, err
			}
		}
		be.PutUint32(b[4:], tcpSeq)
		if b[13]&packet.ACK != 0 {
			be.PutUint32(b[8:], tcpAck)
		}
		b[12] = packet.TCPHeaderLen / 4 << 4
		be.PutUint16(b[14:], tcpWindow)
		sumAt = 16
	case packet.UDP:
		b = append(make([]byte, packet.UDPHeaderLen), udpPayload...)
		be.PutUint16(b[4:], uint16(len(b)))
		sumAt = 6
	case packet.SCTP:
		b = make([]byte, packet.SCTPHeaderLen+chunkSize)
		be.PutUint32(b[4:], sctpTag)
		if e.Chunk != nil {
			b[packet.SCTPHeaderLen] = *e.Chunk
		}
		be.PutUint16(b[packet.SCTPHeaderLen+2:], chunkSize)
	}
	be.PutUint16(b, f.SrcPort)
	be.PutUint16(b[2:], f.DstPort)
	if sumAt < 0 {
		// CRC32c, sent with the lowest byte first (RFC 9260 appendix A).
		binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		return b, nil
	}
	sum := ^packet.Fold(packet.Sum(b, packet.PseudoSum(f.Src, f.Dst, f.Proto, len(b))))
	if f.Proto == packet.UDP && sum == 0 {
		sum = 0xffff
	}
	be.PutUint16(b[sumAt:], sum)
	return b, nil
}
