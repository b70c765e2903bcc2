package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"pktdirector/packet"
)

// trouble is one code with one server, or one service where no server is known.
type trouble struct {
	code  Code
	who   string
	conns []*conn
	refs  []Ref
}

// troubles joins what is wrong with connections into findings.
func (f *inference) troubles(codes map[*conn]Code) []Finding {
	var list []*trouble
	at := map[string]*trouble{}
	for _, c := range f.conns {
		code := codes[c]
		if code == "" {
			continue
		}
		who := c.serverName()
		if code == ServerNoARP {
			if q := f.unresolved(c); q != nil {
				who = q.target.String()
			}
		}
		if who == "" || code == NoServer || code == NoService || code == NotForwarded {
			who = endName(c.service)
		}
		key := string(code) + " " + who
		t := at[key]
		if t == nil {
			t = &trouble{code: code, who: who}
			at[key] = t
			list = append(list, t)
		}
		t.conns = append(t.conns, c)
	}
	// One cause: what else fails with a server that answers past the director.
	for _, t := range list {
		if t.code == ServerSilent {
			if b := at[string(ReplyBypass)+" "+t.who]; b != nil {
				b.conns, t.conns = append(b.conns, t.conns...), nil
			}
		}
	}
	var out []Finding
	for _, t := range list {
		if len(t.conns) == 0 {
			continue
		}
		if !f.counts(t) {
			for _, c := range t.conns {
				codes[c] = ""
			}
			continue
		}
		out = append(out, f.finding(t))
	}
	return out
}

// few is how many connections may fail for reasons of their own: strangers who look
// what there is, a client that comes too late, a request that a service does not like.
const few = 2

// counts reports whether what befell these connections is more than befalls any.
func (f *inference) counts(t *trouble) bool {
	switch t.code {
	case ServerReset:
		return f.resetCounts(t) && (t.conns[0].out != none || !f.probed(t))
	case NoService, NotForwarded, Unanswered:
		return !f.probed(t)
	case DirectorReset:
		// That a connection was balanced and then is not speaks for itself.
		return len(t.conns) > few || slices.ContainsFunc(t.conns, func(c *conn) bool { return c.hasISN && c.out != none })
	case ServerMidReset:
		return len(t.conns) >= few || len(f.conns) <= few
	}
	return true
}

// probed reports whether somebody looked whether a port is open that never was,
// while others were served.
func (f *inference) probed(t *trouble) bool {
	if f.goodService[serviceEnd{t.conns[0].service, t.conns[0].client.proto}] > 0 || len(f.goodClient) == 0 {
		return false
	}
	strangers := map[packet.Addr]bool{}
	for _, c := range t.conns {
		strangers[c.client.addr] = true
		if f.goodClient[c.client.addr] > 0 {
			strangers[packet.Addr{}] = true // one who is served elsewhere
		}
	}
	return len(t.conns) <= few || len(strangers) == 1
}

// resetCounts tells a server that refuses past the director, as with direct routing,
// from a client that sent one SYN and went away: the server serves nobody, while
// others do, or the capture shows more than SYNs at all.
func (f *inference) resetCounts(t *trouble) bool {
	for _, c := range t.conns {
		if v := c.sight(); v.reset != nil {
			return true
		}
	}
	others := 0
	for _, n := range f.good {
		others += n
	}
	const enough = 3
	return f.good[t.conns[0].server] == 0 && (others >= enough || len(t.conns) > 1 && (others > 0 || len(f.neigh.claims) > 0))
}

// shown is how many connections a finding names packets of.
const shown = 4

// ones finds what is one and was written in the plural.
func ones() *regexp.Regexp { return regexp.MustCompile(`\b1 (connection|SYN|SYN-ACK|time)s\b`) }

func (f *inference) finding(t *trouble) Finding {
	x := Finding{Code: t.code, size: len(t.conns)}
	x.Text, x.Next = f.words(t)
	x.Text = ones().ReplaceAllString(x.Text, "1 $1")
	var refs []Ref
	for _, c := range t.conns[:min(len(t.conns), shown)] {
		refs = append(refs, f.evidence(t.code, c)...)
	}
	refs = append(refs, t.refs...)
	x.Packets = f.names(refs)
	return x
}

// evidence returns the packets that show what is wrong with a connection.
func (f *inference) evidence(code Code, c *conn) []Ref {
	v := c.sight()
	refs := []Ref{c.start}
	if v.out != nil && v.out.req.syns > 0 {
		refs = append(refs, v.out.req.syn)
	}
	switch code {
	case ServerReset, NoService, DirectorReset, ServerMidReset:
		if v.reset != nil {
			refs = append(refs, v.reset.reset)
		}
		if v.in != nil && v.in.rep.rst {
			refs = append(refs, v.in.rep.reset)
		}
	case ReplyBypass, WrongAddress:
		if v.clientRST != nil {
			refs = append(refs, v.clientRST.reset)
		}
		if c.direct != none {
			refs = append(refs, c.paths[c.direct].req.lastRef)
		}
		if q := f.otherGateway(c); q != nil {
			refs = append(refs, q.last)
		}
		if p := c.stranger(); p != nil {
			refs = append(refs, p.rep.lastRef)
		}
	case MTUBlackHole, MTUIgnored, DataUnanswered:
		if h, _ := c.stalled(); h != nil {
			refs = []Ref{h.firstData, h.repeatRef}
		}
	case ServerNoARP:
		if q := f.unresolved(c); q != nil {
			refs = append(refs, q.first, q.last)
		}
	default:
		if v.in != nil {
			refs = append(refs, v.in.req.lastSyn)
		}
		refs = append(refs, c.looped)
		if v.out != nil {
			refs = append(refs, v.out.req.lastSyn)
			if v.out.rep.packets > 0 {
				refs = append(refs, v.out.rep.lastRef)
			}
		}
	}
	for i := range c.icmp {
		refs = append(refs, c.icmp[i].ref)
	}
	return refs
}

// clients names a few clients.
func clients(list []*conn) string {
	var names []string
	for _, c := range list {
		names = append(names, c.client.String())
	}
	names = slices.Compact(names)
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}
