package dataplane_test

import (
	"net"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"pktdirector/packet"
)

// masqueraded is a connection as the slow translator knows it.
type masqueraded struct {
	proto                   packet.Proto
	client, virtual, server string // address:port
}

// slowError is an ICMP error taken apart with gopacket. It knows IP headers
// without options and extension headers only.
type slowError struct {
	ip4    *layers.IPv4
	ip6    *layers.IPv6
	icmp   []byte // from the type on
	quote4 *layers.IPv4
	quote6 *layers.IPv6
	rest   []byte // behind the quoted IP header
	proto  packet.Proto
}

// takeApart returns nil for what the slow translator does not know.
func takeApart(raw []byte) *slowError {
	e := &slowError{}
	var feedback nothing
	switch {
	case len(raw) >= 28 && raw[0] == 0x45 && raw[9] == 1:
		e.ip4 = &layers.IPv4{}
		if e.ip4.DecodeFromBytes(raw, feedback) != nil || e.ip4.FragOffset != 0 || e.ip4.Flags&layers.IPv4MoreFragments != 0 {
			return nil
		}
		e.icmp = e.ip4.Payload
		if len(e.icmp) < 8 {
			return nil
		}
		if t := e.icmp[0]; t != 3 && t != 4 && t != 11 {
			return nil
		}
		quote := e.icmp[8:]
		if len(quote) < 20 || quote[0] != 0x45 || quote[6]&0x1f != 0 || quote[7] != 0 {
			return nil
		}
		// gopacket wants a length that is no more than the bytes.
		e.quote4 = &layers.IPv4{Version: 4, IHL: 5, TOS: quote[1], Length: uint16(quote[2])<<8 | uint16(quote[3]), Id: uint16(quote[4])<<8 | uint16(quote[5]),
			Flags: layers.IPv4Flag(quote[6] >> 5), TTL: quote[8], Protocol: layers.IPProtocol(quote[9]), SrcIP: net.IP(quote[12:16]), DstIP: net.IP(quote[16:20])}
		e.rest, e.proto = quote[20:], packet.Proto(quote[9])
	case len(raw) >= 48 && raw[0]>>4 == 6 && raw[6] == 58:
		e.ip6 = &layers.IPv6{}
		if e.ip6.DecodeFromBytes(raw, feedback) != nil {
			return nil
		}
		e.icmp = e.ip6.Payload
		if len(e.icmp) < 8 {
			return nil
		}
		if t := e.icmp[0]; t == 0 || t > 127 {
			return nil
		}
		quote := e.icmp[8:]
		if len(quote) < 40 || quote[0]>>4 != 6 {
			return nil
		}
		e.quote6 = &layers.IPv6{Version: 6, TrafficClass: quote[0]<<4 | quote[1]>>4, FlowLabel: uint32(quote[1]&15)<<16 | uint32(quote[2])<<8 | uint32(quote[3]),
			Length: uint16(quote[4])<<8 | uint16(quote[5]), NextHeader: layers.IPProtocol(quote[6]), HopLimit: quote[7], SrcIP: net.IP(quote[8:24]), DstIP: net.IP(quote[24:40])}
		e.rest, e.proto = quote[40:], packet.Proto(quote[6])
	}
	if len(e.rest) < 4 {
		return nil
	}
	return e
}

type nothing struct{}

func (nothing) SetTruncated() {}

// ends returns the addresses of the quoted packet and of the error's receiver.
func (e *slowError) ends() (src, dst, to *net.IP) {
	if e.ip4 != nil {
		return &e.quote4.SrcIP, &e.quote4.DstIP, &e.ip4.DstIP
	}
	return &e.quote6.SrcIP, &e.quote6.DstIP, &e.ip6.DstIP
}

// endpoint splits what masqueraded holds.
func endpoint(s string) (net.IP, uint16) {
	a, err := net.ResolveUDPAddr("udp", s)
	if err != nil {
		panic(err)
	}
	return a.IP, uint16(a.Port)
}

func (e *slowError) port(at int) uint16 { return uint16(e.rest[at])<<8 | uint16(e.rest[at+1]) }

func (e *slowError) setPort(at int, port uint16) {
	e.rest = append([]byte(nil), e.rest...)
	e.rest[at], e.rest[at+1] = byte(port>>8), byte(port)
}

// translate is the slow translator of errors about masqueraded connections: what
// the director must send for raw, or nil when the error is about none of them.
func translate(raw []byte, list []masqueraded) []byte {
	for _, c := range list {
		e := takeApart(raw)
		if e == nil || e.proto != c.proto {
			return nil
		}
		client, clientPort := endpoint(c.client)
		virtual, virtualPort := endpoint(c.virtual)
		server, serverPort := endpoint(c.server)
		src, dst, to := e.ends()
		switch {
		case !to.Equal(*src):
			return nil
		case src.Equal(virtual) && e.port(0) == virtualPort && dst.Equal(client) && e.port(2) == clientPort:
			*to, *src = server, server
			e.setPort(0, serverPort)
		case src.Equal(client) && e.port(0) == clientPort && dst.Equal(server) && e.port(2) == serverPort:
			*dst = virtual
			e.setPort(2, virtualPort)
			if e.ip4 != nil {
				e.ip4.SrcIP = virtual
			} else {
				e.ip6.SrcIP = virtual
			}
		default:
			continue
		}
		return e.join()
	}
	return nil
}

// join puts the error together again, one hop older and with checksums made from
// nothing.
func (e *slowError) join() []byte {
	options := gopacket.SerializeOptions{ComputeChecksums: true}
	quote, whole := gopacket.NewSerializeBuffer(), gopacket.NewSerializeBuffer()
	var header gopacket.SerializableLayer = e.quote6
	if e.quote4 != nil {
		header = e.quote4
	}
	if gopacket.SerializeLayers(quote, options, header, gopacket.Payload(e.rest)) != nil {
		return nil
	}
	payload := gopacket.Payload(append(append([]byte(nil), e.icmp[4:8]...), quote.Bytes()...))
	var err error
	if e.ip4 != nil {
		e.ip4.TTL--
		icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(e.icmp[0], e.icmp[1]), Id: uint16(payload[0])<<8 | uint16(payload[1]), Seq: uint16(payload[2])<<8 | uint16(payload[3])}
		err = gopacket.SerializeLayers(whole, options, e.ip4, icmp, payload[4:])
	} else {
		e.ip6.HopLimit--
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(e.icmp[0], e.icmp[1])}
		if err = icmp.SetNetworkLayerForChecksum(e.ip6); err == nil {
			err = gopacket.SerializeLayers(whole, options, e.ip6, icmp, payload)
		}
	}
	if err != nil {
		return nil
	}
	return whole.Bytes()
}
