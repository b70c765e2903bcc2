package dataplane

import (
	"encoding/binary"

	"pktdirector/packet"
)

// ARP for IPv4 over Ethernet (RFC 826): the fixed part, then sender MAC and
// address, target MAC and address.
const (
	arpLen       = 28
	arpRequest   = 1
	arpReply     = 2
	arpOperation = 6
	arpSenderMAC = 8
	arpSenderIP  = 14
	arpTargetMAC = 18
	arpTargetIP  = 24
)

// arp answers requests for VIPs and learns from what neighbours say of
// themselves.
func (w *Worker) arp(p *packet.Packet) Verdict {
	b := p.Bytes()
	if len(b) < arpLen {
		return Malformed
	}
	if [6]byte(b[:6]) != [6]byte{0, 1, 8, 0, 6, 4} {
		return NotOurs // not IPv4 over Ethernet
	}
	links := *w.d.links.Load()
	if p.Link >= len(links) || links[p.Link].Layer3 {
		return NotOurs
	}
	mac := packet.MAC(b[arpSenderMAC:])
	sender, target := packet.AddrFrom4(b[arpSenderIP:]), packet.AddrFrom4(b[arpTargetIP:])
	if w.answersFor(sender) && mac != links[p.Link].MAC {
		return VIPConflict
	}
	asks := w.answersFor(target) && binary.BigEndian.Uint16(b[arpOperation:]) == arpRequest && sender != target
	v := NotOurs
	if sender.V4() != 0 && usable(mac) && w.confirm(w.neighbourOf(p, sender), mac, asks) {
		v = Learned
	}
	if asks {
		w.sendARP(p, arpReply, links[p.Link].MAC, target, mac, sender, mac)
		v = AnsweredARP
	}
	return v
}

// usable reports whether a machine can have the MAC.
func usable(mac packet.MAC) bool { return !mac.IsMulticast() && !mac.IsZero() }

// neighbourOf names the machine that p came from.
func (w *Worker) neighbourOf(p *packet.Packet, addr packet.Addr) neighbourKey {
	key := neighbourKey{addr: addr, link: p.Link}
	if p.Tagged && (*w.d.links.Load())[p.Link].VLAN == 0 {
		key.vlan = p.VLAN & vlanID
	}
	return key
}

// sendARP sends an ARP packet out of the link (and VLAN) that `like` names.
func (w *Worker) sendARP(like *packet.Packet, op uint16, senderMAC packet.MAC, sender packet.Addr, targetMAC packet.MAC, target packet.Addr, to packet.MAC) {
	p := w.make(arpLen, packet.EtherARP)
	p.Link, p.Tagged, p.VLAN, p.VLANType = like.Link, like.Tagged, like.VLAN, like.VLANType
	p.DstMAC = to
	b := p.Bytes()
	copy(b, []byte{0, 1, 8, 0, 6, 4})
	binary.BigEndian.PutUint16(b[arpOperation:], op)
	copy(b[arpSenderMAC:], senderMAC[:])
	sender.Put4(b[arpSenderIP:])
	copy(b[arpTargetMAC:], targetMAC[:])
	target.Put4(b[arpTargetIP:])
	w.out = append(w.out, p)
}

// solicit asks who has a neighbour's address.
func (w *Worker) solicit(key neighbourKey) {
	links := *w.d.links.Load()
	if key.link >= len(links) {
		return
	}
	from := w.d.host.Load().source(key.link, key.addr)
	like := &packet.Packet{Link: key.link, Tagged: key.vlan != 0, VLAN: key.vlan, VLANType: packet.EtherVLAN}
	if !key.addr.Is4() {
		w.neighbourSolicitation(like, links[key.link].MAC, from, key.addr)
		return
	}
	if !from.IsValid() {
		from = packet.AddrFrom4([]byte{0, 0, 0, 0}) // an ARP probe (RFC 5227)
	}
	w.sendARP(like, arpRequest, links[key.link].MAC, from, packet.MAC{}, key.addr, packet.Broadcast)
}

// announceVIPs tells every segment that the VIPs, and source addresses that the
// host does not have, are here: gratuitous ARP, or an unsolicited neighbour advertisement. A VIP of a link's own subnet is
// announced there; one of no link's subnet on every link.
func (w *Worker) announceVIPs() {
	links, host := *w.d.links.Load(), w.d.host.Load()
	for _, vip := range w.d.rules.Load().announced {
		if !w.answersFor(vip) {
			continue
		}
		at := map[int]bool{}
		for _, a := range host.addrs {
			if a.Prefix.Contains(vip.Netip()) {
				at[a.Link] = true
			}
		}
		for i, link := range links {
			if link.Layer3 || len(at) > 0 && !at[i] {
				continue
			}
			like := &packet.Packet{Link: i}
			if vip.Is4() {
				w.sendARP(like, arpRequest, link.MAC, vip, packet.MAC{}, vip, packet.Broadcast)
			} else {
				w.advertise(like, link.MAC, vip, allNodes(), allNodesMAC(), false)
			}
		}
	}
}

// make returns an empty packet of n zero bytes to send. It is reused in the
// next batch.
func (w *Worker) make(n int, kind packet.EtherType) *packet.Packet {
	if w.nMade == len(w.made) {
		w.made = append(w.made, &packet.Packet{Buf: make([]byte, packet.Headroom+maxMade)})
	}
	p := w.made[w.nMade]
	w.nMade++
	p.Reset(p.Buf, packet.Headroom, n)
	p.EtherType = kind
	clear(p.Bytes())
	p.L3, p.L4 = p.Start, p.Start
	return p
}

// maxMade is the length of the longest packet the engine makes itself: an
// ICMPv6 error fills the minimum IPv6 MTU (RFC 4443 section 2.4).
const maxMade = 1280
