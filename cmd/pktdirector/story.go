package main

import (
	"fmt"
	"net/netip"
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Explain implements control.Source.
func (s *source) Explain(q control.ExplainQuery) control.Story {
	story := control.Story{
		Flow: flowOf(q.Flow), Would: q.Would, Steps: []control.StoryStep{}, Events: []control.Event{},
		History: control.HistoryKept{Events: historyNotes, Drops: historyNotes / 4},
	}
	if q.Would {
		s.foresee(&story, q.Flow)
		return story
	}
	for _, n := range s.director.History(q.Flow) {
		e := control.Event{Time: s.began.Add(n.At)}
		switch {
		case n.Decision != nil:
			e.Kind, e.Decision = control.DecisionEvents.String(), decisionOf(n.Decision)
		case n.State != nil:
			e.Kind, e.State = control.StateEvents.String(), stateOf(n.State)
		case n.Drop != nil:
			e.Kind, e.Drop = control.DropEvents.String(), dropOf(n.Drop)
		}
		story.Events = append(story.Events, e)
		story.Steps = append(story.Steps, e.Step())
	}
	whole := func(a packet.Addr, port uint16) conntrack.Peer {
		ip := a.Netip()
		return conntrack.Peer{Net: netip.PrefixFrom(ip, ip.BitLen()), Port: port}
	}
	filter := conntrack.Filter{
		Kinds: conntrack.Connections, Proto: q.Flow.Proto, Client: whole(q.Flow.Src, q.Flow.SrcPort), VIP: whole(q.Flow.Dst, q.Flow.DstPort),
	}
	s.director.SelectConns(filter)(func(c dataplane.ConnStatus) bool {
		now := listed(c, s.director.Now())
		story.Connection = &now
		return false
	})
	if c := story.Connection; c != nil {
		story.Steps = append(story.Steps, control.StoryStep{Time: time.Now(), Text: nowText(c)})
	}
	story.Known = len(story.Steps) > 0
	return story
}

// nowText is a connection as it is now, in words.
func nowText(c *control.Connection) string {
	text := fmt.Sprintf("now: %s with the server %s by %s, %ds old, %ds without a packet, ends in %ds; %d packets and %d bytes of requests",
		c.State, netip.AddrPortFrom(netip.MustParseAddr(c.Destination), c.DestinationPort), c.Method, c.Age, c.Idle, c.Expires, c.Requests.Packets, c.Requests.Bytes)
	if c.Replies == nil {
		return text + "; replies do not pass the director"
	}
	return text + fmt.Sprintf(", %d packets and %d bytes of replies", c.Replies.Packets, c.Replies.Bytes)
}

// foresee tells what would become of a first packet now.
func (s *source) foresee(story *control.Story, f packet.Flow) {
	p := firstPacket(f)
	o := s.director.Foresee(p)
	to := &control.Outlook{Verdict: o.Verdict.String(), Means: o.Verdict.Help(), Advice: o.Verdict.Advice(), Resolved: o.Resolved}
	now := time.Now()
	add := func(details []string, format string, args ...any) {
		story.Steps = append(story.Steps, control.StoryStep{Time: now, Text: fmt.Sprintf(format, args...), Details: details})
	}
	endpoint := func(k lvs.ServerKey) string { return packet.Endpoint(k.RIP, k.Port) }
	if o.Existing != nil {
		add(nil, "there is an entry: %s with the server %s", o.Existing.State, packet.Endpoint(o.Existing.Dest, o.Existing.DestPort))
		if o.Reopens {
			add(nil, "it would make way, and the connection be scheduled anew; until then it counts in ActiveConn or InActConn below")
		}
	}
	if o.Mark != 0 {
		add(nil, "the packet's firewall mark is %d", o.Mark)
	}
	if o.Service != (lvs.ServiceKey{}) {
		to.Service = control.ServiceID(o.Service)
		if o.Found != 0 {
			add(nil, "the service is %s, found by %s", to.Service, o.Found)
		}
	}
	if o.Throttled > 0 {
		add(nil, "drop_packet is at work: it drops one new connection in %d", o.Throttled)
	}
	if o.Full {
		add(nil, "as many connections as may be are there: a half-open or finished one would have to make way, or this one be refused")
	}
	if t := o.Template; t != nil {
		what := "decides"
		if o.Abandoned {
			what = "does not count: its server is gone, or has weight 0"
		}
		add(nil, "the client's template, for the server %s, %s", packet.Endpoint(t.Dest, t.DestPort), what)
	}
	if o.Decision != nil {
		to.Decision = decisionOf(o.Decision)
		if to.Decision.Picked == "" {
			add(to.Decision.Lines(), "no server is available")
		} else {
			add(to.Decision.Lines(), "the server %s would be chosen", endpoint(o.Decision.Pick.Server))
		}
	}
	if o.Server.RIP.IsValid() {
		to.Server, to.Method = control.ServerID(o.Server), o.Method.String()
		add(nil, "the packet would go to %s by %s", endpoint(o.Server), o.Method)
	}
	if o.Link >= 0 && o.Link < len(s.links) {
		to.Link = s.links[o.Link].Info().Name
		text := "it would leave by " + to.Link
		if o.NextHop.IsValid() {
			to.NextHop = o.NextHop.String()
			text += ", next hop " + to.NextHop
			if !o.Resolved {
				text += ", whose MAC address is not known yet: it would be asked for"
			}
		}
		add(nil, "%s", text)
	}
	words := fmt.Sprintf("verdict %s: %s", to.Verdict, to.Means)
	if to.Advice != "" {
		words += ". What to do: " + to.Advice
	}
	add(nil, "%s", words)
	story.Known, story.Outlook = true, to
}

// firstPacket makes the first packet of a connection: a SYN, a datagram, or an SCTP
// packet with INIT. It comes from no link in particular.
func firstPacket(f packet.Flow) *packet.Packet {
	const sctpInit = 1
	header := packet.IPv4HeaderLen
	if !f.Src.Is4() {
		header = packet.IPv6HeaderLen
	}
	n := header + map[packet.Proto]int{packet.TCP: packet.TCPHeaderLen, packet.UDP: 8, packet.SCTP: 12 + 20}[f.Proto]
	p := new(packet.Packet)
	p.Reset(make([]byte, packet.Headroom+n), packet.Headroom, n)
	p.Link = -1
	b := p.Bytes()
	if f.Src.Is4() {
		p.EtherType = packet.EtherIPv4
		b[0], b[3], b[8], b[9] = 0x45, byte(n), 64, byte(f.Proto)
		f.Src.Put4(b[12:])
		f.Dst.Put4(b[16:])
		packet.PutIPv4Checksum(b[:header])
	} else {
		p.EtherType = packet.EtherIPv6
		b[0], b[5], b[6], b[7] = 0x60, byte(n-header), byte(f.Proto), 64
		f.Src.Put16(b[8:])
		f.Dst.Put16(b[24:])
	}
	t := b[header:]
	t[0], t[1], t[2], t[3] = byte(f.SrcPort>>8), byte(f.SrcPort), byte(f.DstPort>>8), byte(f.DstPort)
	switch f.Proto {
	case packet.TCP:
		t[12], t[13] = 5<<4, packet.SYN
	case packet.UDP:
		t[5] = 8
	case packet.SCTP:
		t[12], t[15] = sctpInit, 20
	}
	packet.Parse(p)
	return p
}
