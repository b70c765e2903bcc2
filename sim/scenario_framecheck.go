package sim

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"

	"pktdirector/packet"
)

// sameFrames compares the frames that left the director byte by byte, apart
// from what a machine chooses afresh each time it runs: the IP id of packets that
// the director makes itself with the header checksum over it, the source port of
// a GUE tunnel with the checksum over it, IPv6 flow labels of tunnels and of the
// director's own answers, and the identification of IPv6 fragments.
func sameFrames(in string, want, got []Out) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i].To != got[i].To || masked(in, want[i].Frame) != masked(in, got[i].Frame) {
			return false
		}
	}
	return true
}

// masked returns a frame with its volatile fields set to zero; in is the frame
// that caused it.
func masked(in, frame string) string {
	const header = 14
	b, err := hex.DecodeString(frame)
	if err != nil || len(b) < header+packet.IPv4HeaderLen {
		return frame
	}
	ip := b[header:]
	switch packet.EtherType(binary.BigEndian.Uint16(b[12:])) {
	case packet.EtherIPv4:
		maskIPv4(ip, fromDirector(ip[12:16]), isICMP(in))
	case packet.EtherIPv6:
		if len(ip) >= packet.IPv6HeaderLen {
			maskIPv6(ip, answers(in, ip))
		}
	}
	return hex.EncodeToString(b)
}

// isICMP reports whether a frame carries ICMP that the director may pass on with
// its id: an error that is not about a tunnel packet of the director's own, or no
// error at all.
func isICMP(frame string) bool {
	b, err := hex.DecodeString(frame)
	return err == nil && len(b) >= 14+packet.IPv4HeaderLen && b[12] == 8 && b[13] == 0 &&
		packet.Proto(b[14+9]) == packet.ICMP && !fromDirector(b[14+16:14+20])
}

// answers reports whether an IPv6 packet goes back to the sender of a frame from
// where the frame was sent to.
func answers(frame string, ip []byte) bool {
	b, err := hex.DecodeString(frame)
	if err != nil || len(b) < 14+packet.IPv6HeaderLen || b[12] != 0x86 || b[13] != 0xdd {
		return false
	}
	in := b[14:]
	return bytes.Equal(in[8:24], ip[24:40]) && bytes.Equal(in[24:40], ip[8:24])
}

func fromDirector(src []byte) bool {
	for _, prefixes := range directorAddrs() {
		for _, p := range prefixes {
			if string(p.Addr().AsSlice()) == string(src) {
				return true
			}
		}
	}
	return false
}

func maskIPv4(ip []byte, own, causedByICMP bool) {
	headerLen := int(ip[0]&15) * 4
	if len(ip) <= headerLen {
		return
	}
	proto := packet.Proto(ip[9])
	const dontFragment = 0x40
	first := binary.BigEndian.Uint16(ip[6:])&0x1fff == 0
	icmpError := proto == packet.ICMP && first && (ip[headerLen] == 3 || ip[headerLen] == 11 || ip[headerLen] == 12)
	echoReply := proto == packet.ICMP && first && ip[headerLen] == 0
	if icmpError && !causedByICMP || echoReply && causedByICMP || own && ip[6]&dontFragment == 0 {
		clear(ip[4:6])
		clear(ip[10:12])
	}
	if own && proto == packet.UDP && first && len(ip) >= headerLen+8 {
		clear(ip[headerLen : headerLen+2])   // GUE source port
		clear(ip[headerLen+6 : headerLen+8]) // checksum
	}
}

func maskIPv6(ip []byte, answer bool) {
	const fragment = 44
	own := fromDirector(ip[8:24])
	if own || answer {
		ip[1] &= 0xf0
		clear(ip[2:4]) // flow label
	}
	at, next := packet.IPv6HeaderLen, ip[6]
	if next == fragment && len(ip) >= at+8 {
		clear(ip[at+4 : at+8])
		first := binary.BigEndian.Uint16(ip[at+2:])>>3 == 0
		next, at = ip[at], at+8
		if !first {
			return
		}
	}
	if own && packet.Proto(next) == packet.UDP && len(ip) >= at+8 {
		clear(ip[at : at+2])
		clear(ip[at+6 : at+8])
	}
}

// frameLines writes frames for people to compare.
func frameLines(list []Out) []string {
	var text []string
	for _, o := range list {
		text = append(text, "to "+o.To)
		const width = 32 // hex digits a line
		for frame := o.Frame; frame != ""; {
			n := min(width, len(frame))
			text = append(text, "  "+frame[:n])
			frame = frame[n:]
		}
	}
	if len(text) == 0 {
		text = []string{"silence"}
	}
	return text
}
