package judge

import (
	"fmt"
	"time"
)

// words says what was seen and what to look at.
func (f *inference) words(t *trouble) (text, next string) {
	c, n := t.conns[0], len(t.conns)
	of := max(n, f.of[serverKey{c.server, c.serverMAC}])
	v := c.sight()
	who, service := t.who, endName(c.service)
	via := ""
	if service != "" {
		via = " of " + service
	}
	from := " (clients " + clients(t.conns) + ")"
	switch t.code {
	case ReplyBypass:
		return f.bypassWords(t, of)
	case WrongAddress:
		if p := c.stranger(); p != nil && c.direct == none {
			return fmt.Sprintf("clients%s are answered from %s, an address that they did not ask, and which the director does not translate: %d of %d connections%s", via, p.remote, n, of, from),
				"on the server: which address does the service answer from (several addresses, a rule that translates)? It must be the one that the director sends to, " + endName(c.server)
		}
		return fmt.Sprintf("%s answers clients%s with its own address: %d of %d connections failed, the client reset what came from there%s", who, via, n, of, from),
			"the service on the server must answer from the VIP: look for a rule there that translates addresses, and at the address it listens on (ss -ltn)"
	case ServerReset:
		if v.reset == nil {
			return fmt.Sprintf("%s seems to refuse connections%s: in %d of %d the client stopped after its first SYN, as after an RST that went past the director (server down)%s", who, via, n, of, from),
				"on the server: does something listen on that port and address (ss -ltn)? A capture there shows the RST"
		}
		return fmt.Sprintf("%s resets connections%s: RST answered the SYN of %d of %d (server down: nothing listens there, or a firewall rejects)%s", who, via, n, of, from),
			"on the server: does something listen on that port and address (ss -ltn)? Take it out of service (weight 0), or let a health check do so"
	case ServerICMP:
		e := c.unreachable()
		why := ""
		if e.noProtocol() && c.kind == tunMode {
			why = "; it does not unwrap that tunnel"
		}
		return fmt.Sprintf("%s does not take connections%s: %s from %s about %d of %d%s%s", who, via, e, e.from, n, of, why, from),
			"look at the machine that sent it: a firewall, a missing route, a port or a tunnel module that is not there"
	case ServerNoARP:
		q := f.unresolved(c)
		return fmt.Sprintf("%s does not answer ARP or neighbour discovery: asked %d times, no answer, %d connections%s went nowhere (server down)%s", who, q.n, n, via, from),
			"is the server up, on this segment and VLAN, and the address right? ping it from the director (ip neigh show shows FAILED)"
	case VIPMissing:
		if f.loops(c) {
			return fmt.Sprintf("%s sends packets%s back to the director instead of taking them, %d of %d connections: the VIP is missing there, and it forwards%s", who, via, n, of, from), vipNext(c)
		}
		return fmt.Sprintf("%s is up but takes no connection%s: in %d of %d its SYN was handed over, sent again by the client, and neither answered nor reset: the VIP is missing there%s", who, via, n, of, from),
			vipNext(c)
	case ServerSilent:
		return fmt.Sprintf("%s did not answer %d of %d connections%s: SYNs went to it, again and again, and nothing came back (server down)%s", who, n, of, via, from),
			"is the service up, and does a firewall drop? Capture on the server: do the SYNs arrive, does a SYN-ACK leave, and by which interface?"
	case ReplyViaDirector:
		return fmt.Sprintf("%s sends its replies%s to the director, which direct routing and tunnelling do not translate: %d connections%s", who, via, n, from),
			"on the server, the default gateway must be the router, not the director"
	case ReplyNotForwarded:
		return fmt.Sprintf("the director does not pass on what %s answers%s: %d SYN-ACKs reached it and none went to the client%s", who, via, n, from),
			"on the director: net.ipv4.ip_forward, the FORWARD chain of the firewall, rp_filter, the route to the client"
	case MTUBlackHole, MTUIgnored, DataUnanswered:
		return f.stallWords(t)
	case NoServer:
		return fmt.Sprintf("the director refuses connections to %s: ICMP port unreachable from the VIP, no server is available, %d connections%s", who, n, from),
			"ipvsadm -Ln: are all servers at weight 0, removed or over their threshold?"
	case NoService:
		return fmt.Sprintf("the director itself resets connections to %s and sends none on: no service has that address and port, %d connections%s", who, n, from),
			"ipvsadm -Ln: protocol, VIP and port of the service, or the firewall mark"
	case NotForwarded:
		return fmt.Sprintf("%d SYNs to %s reached the director, again and again, and were not sent on%s", n, who, from),
			"on the director: ipvsadm -Ln (a service, servers with weight?), the firewall, ip_forward, routes to the servers, and pktdirector list --verdicts"
	case Unanswered:
		return fmt.Sprintf("%d SYNs to %s stayed unanswered; what became of them is not in the capture%s", n, who, from),
			"capture on the servers' side as well, and give both files"
	case SYNACKUnanswered:
		return fmt.Sprintf("clients of %s do not take the SYN-ACK: it was sent again in %d connections%s", service, n, from),
			"the way back to the client: routes, a firewall that keeps state, or the reply leaves with an address the client did not ask"
	case DirectorReset:
		return fmt.Sprintf("the director resets connections to %s: RST came from the VIP, by the director, and no server sent one, %d connections; it has no entry for them (idle for too long, or it was restarted)%s", service, n, from),
			"ipvsadm -l --timeout against the keepalive of clients and servers; expire_nodest_conn and removed servers"
	case ServerMidReset:
		return fmt.Sprintf("%s accepts connections%s and resets them when asked: RST instead of an answer in %d of %d%s", who, via, n, of, from),
			"the log of the service; a limit on connections; a request for a name or protocol it does not serve"
	}
	return fmt.Sprintf("%s: %d connections%s", who, n, from), ""
}

func vipNext(c *conn) string {
	if c.kind == tunMode {
		return "on the server: the VIP on tunl0 or lo (ip addr), the tunnel's module, rp_filter=0 on tunl0 and for all, and that the service listens on the VIP"
	}
	return "on the server: ip addr show dev lo must have the VIP (/32), with arp_ignore=1 and arp_announce=2 set before; and the service must listen on the VIP"
}

func (f *inference) bypassWords(t *trouble, of int) (text, next string) {
	direct, resets, went := 0, 0, 0
	var gateway *asked
	for _, c := range t.conns {
		v := c.sight()
		if c.direct != none {
			direct++
		}
		if v.clientRST != nil {
			resets++
		}
		if v.progress {
			went++
		}
		if q := f.otherGateway(c); q != nil {
			gateway = q
		}
	}
	text = fmt.Sprintf("%s answers past the director, which has to translate its replies (NAT, asymmetric way): no SYN-ACK came back through the director in %d of %d connections", t.who, len(t.conns), of)
	if direct > 0 {
		text += fmt.Sprintf(", and clients sent RST to %s itself, whose SYN-ACK reached them from that wrong address", endName(t.conns[0].server))
	} else if resets > 0 {
		text += ", and clients reset what they got from elsewhere"
	}
	if went > 0 {
		text += fmt.Sprintf("; in %d the client went on nevertheless", went)
	}
	if gateway != nil {
		text += fmt.Sprintf("; the server asked ARP for %s instead", gateway.target)
	}
	return text + " (clients " + clients(t.conns) + ")",
		"on the server: ip route get CLIENT must lead to the director; make the director its default gateway, or use fullnat"
}

func (f *inference) stallWords(t *trouble) (text, next string) {
	c := t.conns[0]
	h, ofServer := c.stalled()
	sender, other := "the client", t.who
	if ofServer {
		sender, other = t.who, "the client"
	}
	where := ""
	if c.in != none && c.out != none {
		if _, seen := c.forwardedStall(ofServer); seen {
			where = ", beyond the director"
		} else {
			where = ", in the director"
		}
	}
	after := time.Duration(h.repeated - h.firstAt).Round(100 * time.Millisecond)
	switch t.code {
	case DataUnanswered:
		return fmt.Sprintf("data of %s is never acknowledged by %s: sent %d times in %s (%d bytes), %d connections (clients %s)", sender, other, h.repeats+1, after, h.againSize, len(t.conns), clients(t.conns)),
			"has the server died, or the way changed? Small segments vanish, too, so it is not the MTU"
	case MTUIgnored:
		e := c.icmp[0]
		for _, o := range c.icmp {
			if o.fragNeeded() {
				e = o
			}
		}
		return fmt.Sprintf("MTU black hole: large packets of %s vanish, and it does not heed %s from %s: %d bytes sent %d times in %s and never acknowledged, %d connections (clients %s)", sender, &e, e.from, h.againSize, h.repeats+1, after, len(t.conns), clients(t.conns)),
			"does a firewall drop ICMP on the way to the sender? Let type 3 code 4 (ICMPv6 type 2) pass, or clamp the MSS"
	}
	return fmt.Sprintf("MTU black hole: large packets of %s vanish%s: small ones pass, but %d bytes were sent %d times in %s and never acknowledged, and no ICMP \"fragmentation needed\" came, %d connections (clients %s)", sender, where, h.againSize, h.repeats+1, after, len(t.conns), clients(t.conns)),
		"find the link with the smaller MTU (tracepath, ping -M do -s) and the firewall that drops ICMP; a tunnel needs 20 bytes and more: raise its MTU, or clamp the MSS"
}

// forwardedStall reports whether the segment that is sent again was seen to leave
// the director.
func (c *conn) forwardedStall(ofServer bool) (*half, bool) {
	h := &c.paths[c.out].req
	if ofServer {
		h = &c.paths[c.in].rep
	}
	return h, h.repeats > 0
}
