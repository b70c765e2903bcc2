package dataplane_test

import (
	"encoding/binary"
	"net/netip"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// ftpLines are what both ends of FTP's control connections say.
func ftpLines() []string {
	return []string{
		"PASV\r\n", "EPSV\r\n", "PORT 198,51,100,10,156,64\r\n", "EPRT |1|198.51.100.10|40000|\r\n",
		"227 Entering Passive Mode (192,0,2,11,156,65).\r\n", "229 Entering Extended Passive Mode (|||40001|)\r\n",
		"227 Entering Passive Mode (203,0,113,80,156,66)\r\n", "USER x\r\n227 En", "tering (192,0,2,11,156,67)\r\n", "x",
	}
}

// built makes a packet from a client or a server to a service, most often a
// right one.
func (p *player) built() *packet.Packet {
	s := p.s
	kind, who, what := s.byte(), s.byte(), s.byte()
	v6 := kind&1 != 0
	from, to := "198.51.100.10", vip
	if v6 {
		from, to = "2001:db8:1::10", vip6
	} else if who&0x20 != 0 {
		to = "203.0.113.81"
	}
	if who&0x10 != 0 { // a client that nobody knows
		a := addr(from).Netip().AsSlice()
		a[len(a)-1] = 20 + who&7
		ip, _ := netip.AddrFromSlice(a)
		from = ip.String()
	}
	flow := packet.Flow{Src: addr(from), Dst: addr(to), SrcPort: 40000 + uint16(who&7), DstPort: 80 + uint16(who>>3&1) + uint16(what&0x0e)/2}
	flow.Proto = []packet.Proto{packet.TCP, packet.UDP, packet.SCTP, packet.TCP}[kind>>1&3]
	if kind>>1&3 == 3 {
		flow.DstPort = 21
	}
	link := clientLink
	if kind&8 != 0 { // as if from a server
		flow.Src, flow.SrcPort, flow.Dst, flow.DstPort = addr(rip(1+int(who&3))), 8000+flow.DstPort, flow.Src, flow.SrcPort
		if v6 {
			flow.Src = addr(rip6(1 + int(who&3)))
		}
		link = serverLink
	}
	q := p.packet(flow, s.byte(), what)
	q.Link = link
	if kind&0x10 != 0 {
		p.spoil(q)
	}
	switch kind >> 5 {
	case 1:
		q.Link = 2
	case 2:
		q.Tagged, q.VLAN, q.VLANType = true, 100, packet.EtherVLAN
	case 3:
		q.Class = packet.Class(who) % 5
	}
	return q
}

// packet builds a packet of a flow. flags are TCP's, or choose SCTP's chunk; what
// chooses its length and form.
func (p *player) packet(flow packet.Flow, flags, what byte) *packet.Packet {
	var payload []byte
	switch what >> 5 {
	case 1:
		payload = []byte(ftpLines()[p.s.below(len(ftpLines()))])
	case 2:
		payload = p.s.bytes(int(p.s.byte()))
	case 3:
		payload = make([]byte, 1200+int(p.s.byte()))
	case 4, 5:
		payload = make([]byte, 4000)
	}
	if flow.Proto == packet.SCTP {
		return p.sctp(flow, flags, len(payload))
	}
	spec := packettest.Spec{
		Src: packet.Endpoint(flow.Src, flow.SrcPort), Dst: packet.Endpoint(flow.Dst, flow.DstPort),
		UDP: flow.Proto == packet.UDP, Flags: flags, Seq: 1000 + uint32(what), Ack: 1, Payload: payload, NoDF: what&1 != 0, TTL: 64,
	}
	if what == 0x10 {
		spec.TTL = 1
	}
	switch {
	case what>>5 == 4 && spec.Flags&packet.SYN == 0:
		spec.GSOSize = 1000
	case what>>5 == 6:
		spec.Partial = true
	}
	q := packettest.Build(p.t, spec)
	if what>>5 == 7 || what>>5 == 5 {
		return p.fragment(q, flags)
	}
	return q
}

// sctp builds an SCTP packet with one chunk.
func (p *player) sctp(flow packet.Flow, chunk byte, n int) *packet.Packet {
	body := make([]byte, 16+n/4*4)
	binary.BigEndian.PutUint16(body, flow.SrcPort)
	binary.BigEndian.PutUint16(body[2:], flow.DstPort)
	body[12] = chunk & 15
	binary.BigEndian.PutUint16(body[14:], uint16(len(body)-12))
	return carrying(packet.SCTP, flow.Src.String(), flow.Dst.String(), body)
}

// fragment makes a piece out of a packet.
func (p *player) fragment(q *packet.Packet, which byte) *packet.Packet {
	b := q.Bytes()
	header, most := 40, 1432
	if b[0]>>4 == 4 {
		header, most = 20, 1480
		b[6] &^= 0x40 // what was cut may be cut again
	}
	n := len(b) - header
	size := max(8, min(n, most)/8*8)
	from := min(int(which&3)*size, n)
	to := min(from+size, n)
	return packettest.Fragment(p.t, q, uint32(which>>5), packettest.Piece{Offset: from, Len: to - from, Last: to == n && which&4 == 0})
}

// one of the packets that left; nil when there is none.
func (p *player) one() *packet.Packet {
	if len(p.left) == 0 {
		return nil
	}
	return p.left[len(p.left)-1-p.s.below(len(p.left))]
}

// answer has a server answer a packet that it was sent.
func (p *player) answer() {
	o := p.one()
	if o == nil {
		return
	}
	f := o.Flow
	switch f.Proto {
	case packet.TCP, packet.UDP, packet.SCTP:
	default:
		return
	}
	if f.SrcPort == 0 || f.DstPort == 0 {
		return
	}
	how := p.s.byte()
	if how&1 == 0 { // else the packet itself comes back
		f.Src, f.Dst, f.SrcPort, f.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	}
	q := p.packet(f, p.s.byte(), p.s.byte())
	q.Link = o.Link
	if how&2 != 0 {
		q.Link = clientLink
	}
	p.process(q)
}

// complain sends an ICMP error about a packet that left.
func (p *player) complain() {
	o := p.one()
	if o == nil || o.Len() < 28 {
		return
	}
	kinds := []byte{3, 3, 3, 11, 4, 5, 12, 8}
	codes := []byte{1, 3, 4, 0, 0, 0, 0, 0}
	b := o.Bytes()
	v6 := b[0]>>4 == 6
	if v6 {
		kinds, codes = []byte{1, 1, 2, 3, 4, 4, 128, 0}, []byte{0, 4, 0, 0, 0, 1, 0, 0}
	}
	how := p.s.byte()
	kind, code := kinds[how&7], codes[how&7]
	quote := b[:min(len(b), 28+int(p.s.byte())*2)]
	if v6 {
		quote = b[:min(len(b), 48+int(p.s.byte())*2)]
	}
	src, dst := "198.51.100.1", packet.AddrFrom4(b[12:])
	if v6 {
		src, dst = "2001:db8:1::1", packet.AddrFrom16(b[8:])
		if dst.Is4() {
			return
		}
	}
	q := icmpFrom(src, dst.String(), kind, code, uint32(700+p.s.word()%1000), quote)
	q.Link = int(how>>3) % arenaLinks
	if how&0x80 != 0 {
		p.spoil(q)
	}
	p.process(q)
}

// neighbour has a machine say who it is, or ask who a VIP is.
func (p *player) neighbour() {
	how := p.s.byte()
	mac := packet.MAC{2, 0, 0, 0, 0, p.s.byte()}
	who := []string{client, rip(1), rip(4), vip, "198.51.100.1", "198.51.100.21"}[int(how>>2)%6]
	switch how & 3 {
	case 0:
		p.d.Learn(dataplane.Neighbour{Link: int(how>>5) % 2, Addr: addr(who), MAC: mac, Permanent: how&0x80 != 0})
		return
	case 1:
		p.d.Learn(dataplane.Neighbour{Link: int(how>>5) % 2, Addr: addr(who)})
		return
	}
	q := arpPacket(how&1+1, mac, who, vip)
	q.Link = int(how>>5) % arenaLinks
	p.process(q)
}

// command does what an operator does. Refusals are fine.
func (p *player) command() {
	s := p.s
	what, which := s.byte(), s.below(len(p.known))
	svc := p.known[which]
	rs := svc.Servers[s.below(len(svc.Servers))]
	rs.Weight = int(s.byte()) % 4
	switch what % 16 {
	case 0:
		_ = p.d.AddService(svc)
	case 1:
		svc.Scheduler = []string{"rr", "wlc", "sh", "lblcr", "mh", "ovf"}[rs.Weight]
		svc.Persist = time.Duration(what>>4) * time.Minute
		_ = p.d.EditService(svc)
	case 2:
		_ = p.d.DeleteService(svc.ServiceKey)
	case 3, 4:
		_ = p.d.AddServer(svc.ServiceKey, rs)
	case 5, 6:
		rs.Upper, rs.Lower = uint32(what>>6), uint32(what>>5&1)
		if what&0x10 != 0 {
			rs.Method = lvs.Route
		}
		_ = p.d.EditServer(svc.ServiceKey, rs)
	case 7, 8:
		_ = p.d.DeleteServer(svc.ServiceKey, rs.ServerKey)
	case 9:
		if what&0xf0 == 0xf0 {
			p.d.Flush()
		}
	case 10:
		_ = p.d.Apply(lvs.Ruleset{Services: p.known[:which], Marks: arenaMarks()})
	case 11, 12:
		names := []string{
			"conn_reuse_mode", "expire_nodest_conn", "expire_quiescent_template", "sloppy_tcp", "sloppy_sctp", "drop_packet", "drop_entry", "secure_tcp",
			"schedule_icmp", "am_droprate", "conn_max", "conntrack", "lblc_expiration", "pmtu_disc", "nat_icmp_send", "amemthresh",
		}
		p.d.SetMemory(int64(what>>6) * 1000)
		value := []string{"0", "1", "2", "3", "5", "40"}[int(what>>4)%6]
		_ = p.d.SetTunable(names[which%len(names)], value)
	case 13:
		p.d.SetTimeouts(time.Duration(s.byte())*20*time.Second, time.Duration(s.byte())*time.Second, time.Duration(s.byte())*time.Second)
	case 14:
		if what&0x10 != 0 {
			p.links(600 + int(s.byte())*4)
		} else if what&0x20 != 0 {
			p.host(addr(rip(1)).Netip())
		} else {
			p.host(netip.Addr{})
		}
	case 15:
		if what&0x10 != 0 {
			p.d.SetMarks(nil)
		} else {
			p.d.SetMarks(arenaMarks())
		}
		p.d.SetLocal([]netip.Prefix{mustPrefix("198.51.100.254/32")})
	}
}
