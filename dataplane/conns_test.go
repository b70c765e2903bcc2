package dataplane_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// only returns the one connection that there is, templates left out.
func (w *world) only() dataplane.ConnStatus {
	w.t.Helper()
	all := slices.Collect(w.d.SelectConns(conntrack.Filter{Kinds: conntrack.Connections}))
	if len(all) != 1 {
		w.t.Fatalf("%d connections, want 1", len(all))
	}
	return all[0]
}

// A connection counts what its service counts: IP bytes, a super-frame as it is on
// the wire, replies where they pass.
func TestAConnectionCountsItsPackets(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel, lvs.FullNAT} {
		t.Run(m.Short(), func(t *testing.T) {
			w := newWorld(t, service("rr", m, 1))
			w.now = 3 * time.Second
			sent := one(t, w.in(clientLink, w.syn("40000"))) // 40 bytes
			w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, 100)}))
			big := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, 2500), GSOSize: 1000})
			w.in(clientLink, big) // 3 packets
			if m.RewritesPorts() {
				w.in(serverLink, packettest.Build(t, packettest.Spec{Src: packet.Endpoint(sent.Flow.Dst, sent.Flow.DstPort), Dst: packet.Endpoint(sent.Flow.Src, sent.Flow.SrcPort), Flags: packet.SYN | packet.ACK, Payload: make([]byte, 7)}))
			}
			w.after(10 * time.Second)
			c := w.only()
			if want := (dataplane.Traffic{Packets: 5, Bytes: 40 + 140 + 2500 + 3*40}); c.Requests != want {
				t.Errorf("requests %+v, want %+v", c.Requests, want)
			}
			want := dataplane.Traffic{}
			if m.RewritesPorts() {
				want = dataplane.Traffic{Packets: 1, Bytes: 47}
			}
			if c.Replies != want || c.RepliesSeen != m.RewritesPorts() {
				t.Errorf("replies %+v (seen: %v), want %+v", c.Replies, c.RepliesSeen, want)
			}
			if age := w.d.Now() - c.Began; age < 10*time.Second || age > 10*time.Second+128*time.Millisecond {
				t.Errorf("age %v, want 10s", age)
			}
			if c.Last != 3*time.Second {
				t.Errorf("last packet at %v, want 3s", c.Last)
			}
			if c.Method != m {
				t.Errorf("method %v", c.Method)
			}
			s := w.d.Status()[0].Stats
			if s.InPkts != c.Requests.Packets || s.InBytes != c.Requests.Bytes || s.OutPkts != c.Replies.Packets || s.OutBytes != c.Replies.Bytes {
				t.Errorf("the service counted %+v, its only connection %+v and %+v", s, c.Requests, c.Replies)
			}
		})
	}
}

// Fragments of a datagram are one packet of the connection, as they are of the
// service.
func TestAConnectionCountsADatagramInFragments(t *testing.T) {
	for _, m := range methods() {
		t.Run(m.Short(), func(t *testing.T) {
			w := newWorld(t, udp(service("rr", m, 1)))
			whole := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", UDP: true, NoDF: true, Payload: make([]byte, 3000)})
			for _, p := range []packettest.Piece{{Offset: 1480, Len: 1480}, {Offset: 0, Len: 1480}, {Offset: 2960, Len: 48, Last: true}} {
				w.in(clientLink, packettest.Fragment(t, whole, 7, p))
			}
			c, s := w.only(), w.d.Status()[0].Stats
			if c.Requests.Packets != s.InPkts || c.Requests.Bytes != s.InBytes || c.Requests.Packets == 0 {
				t.Errorf("the connection counted %+v, the service %+v", c.Requests, s)
			}
		})
	}
}

// The counters of a service that went and came back count its old connections
// again, as do those of the connections.
func TestCountersWhenAServiceComesBack(t *testing.T) {
	s := service("rr", lvs.Masq, 1)
	w := newWorld(t, s)
	w.establish("40000")
	reply := func() {
		w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: client + ":40000", Flags: packet.ACK}))
	}
	before := w.only().Replies.Packets
	other := service("rr", lvs.Masq, 1)
	other.Port = 81
	w.apply(other)
	reply()
	w.apply(s)
	reply()
	if got := w.only().Replies.Packets - before; got != 2 {
		t.Errorf("the connection counted %d replies, want 2", got)
	}
	if got := w.d.Status()[0].Stats.OutPkts; got != 1 {
		t.Errorf("the new service counted %d replies, want 1", got)
	}
}

// slowMatch is the filter by the words of its description.
func slowMatch(f conntrack.Filter, c dataplane.ConnStatus, service lvs.ServiceKey, now time.Duration, widened bool) bool {
	in := func(p conntrack.Peer, a packet.Addr, port uint16) bool {
		return (!p.Net.IsValid() || p.Net.Contains(a.Netip())) && (p.Port == 0 || p.Port == port)
	}
	kind := conntrack.Connections
	if c.Template {
		kind = conntrack.Templates
	}
	age := now - c.Began
	for _, must := range []bool{
		f.Kinds == 0 || f.Kinds&kind != 0,
		f.Proto == 0 || f.Proto == c.Proto,
		in(f.Client, c.Client, c.ClientPort) || widened && (f.Client.Port == 0 || f.Client.Port == c.ClientPort),
		in(f.VIP, c.Virtual, c.VirtualPort),
		in(f.Server, c.Dest, c.DestPort),
		f.Service == nil || *f.Service == service,
		f.States == 0 || f.States.Has(c.State),
		f.Older == 0 || age >= f.Older,
		f.Younger == 0 || age < f.Younger,
		f.Idle == 0 || now-c.Last >= f.Idle,
	} {
		if !must {
			return false
		}
	}
	return true
}

// drawFilter draws a filter that has a chance to choose something of an arena.
func drawFilter(t *rapid.T, services []lvs.VirtualService) conntrack.Filter {
	f := conntrack.Filter{Kinds: conntrack.Kinds(rapid.IntRange(0, 3).Draw(t, "kinds"))}
	some := func(what string) bool { return rapid.IntRange(0, 7).Draw(t, what) == 0 }
	peer := func(what string, nets []string, ports []uint16) (p conntrack.Peer) {
		if some(what) {
			p.Net = netip.MustParsePrefix(rapid.SampledFrom(nets).Draw(t, what+"'s net")).Masked()
		}
		if some(what + "'s port") {
			p.Port = rapid.SampledFrom(ports).Draw(t, "port")
		}
		return p
	}
	f.Client = peer("client", []string{"198.51.100.10/32", "198.51.100.0/24", "198.51.100.20/30", "2001:db8:1::10/128", "2001:db8:1::/64", "0.0.0.0/0", "::/0"}, []uint16{40000, 40001, 40003})
	f.VIP = peer("vip", []string{vip + "/32", vip6 + "/128", "203.0.113.0/24"}, []uint16{80, 81, 84, 21})
	f.Server = peer("server", []string{rip(1) + "/32", rip(2) + "/31", rip6(1) + "/128"}, []uint16{8080, 81, 8087})
	if some("service") {
		key := rapid.SampledFrom(services).Draw(t, "of").ServiceKey
		f.Service = &key
	}
	if some("protocol") {
		f.Proto = rapid.SampledFrom([]packet.Proto{packet.TCP, packet.UDP, packet.SCTP}).Draw(t, "one")
	}
	if some("state") {
		f.States = conntrack.States(0).With(conntrack.Established).With(conntrack.UDP)
	}
	age := func(what string) time.Duration {
		if !some(what) {
			return 0
		}
		return time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second
	}
	f.Older, f.Younger, f.Idle = age("older"), age("younger"), age("idle")
	return f
}

// TestFiltersAndEndsAgreeWithAModel fills an arena by random scripts, and then
// lists and ends by random filters: a slow filter over a copy of the table says
// which entries those are. After each, counts, templates, source ports and records
// of FTP are those of the entries.
func TestFiltersAndEndsAgreeWithAModel(t *testing.T) {
	ended := map[bool]int{} // whether they were templates
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 50, 400).Draw(rt, "script")
		p := &player{arena: newArena(t, int(text[0])), t: t, s: &script{text}}
		for !p.s.done() {
			p.busy(rt)
			p.check()
			for range rapid.IntRange(0, 20).Draw(rt, "steps") {
				p.step()
				p.check()
			}
			f := drawFilter(rt, p.known)
			all := p.listed()
			want := map[string]bool{}
			for _, e := range all {
				if slowMatch(f, e.ConnStatus, e.service, p.d.Now(), e.widened(p.arena, f)) {
					want[e.key()] = true
				}
			}
			listed := 0
			for c := range p.d.SelectConns(f) {
				listed++
				if k := (entry{ConnStatus: c}).key(); !want[k] {
					rt.Fatalf("%+v lists %s", f, k)
				}
			}
			if listed != len(want) {
				rt.Fatalf("%+v lists %d, want %d", f, listed, len(want))
			}
			dry := rapid.Bool().Draw(rt, "dry")
			conns, templates := p.d.EndConns(f, dry)
			if !dry {
				ended[false], ended[true] = ended[false]+conns, ended[true]+templates
			}
			wantConns, wantTemplates := 0, 0
			for _, e := range all {
				switch {
				case !want[e.key()] || e.Dismissed():
				case e.Template:
					wantTemplates++
				default:
					wantConns++
				}
			}
			// Templates that only waited for the connections that ended are gone, too.
			if conns != wantConns || templates != wantTemplates {
				rt.Fatalf("%+v ended %d connections and %d templates, want %d and %d", f, conns, templates, wantConns, wantTemplates)
			}
			left := map[string]bool{}
			for _, e := range p.listed() {
				left[e.key()] = true
				if !dry && want[e.key()] && !e.Dismissed() {
					rt.Fatalf("%+v: %s is still there", f, e.key())
				}
			}
			for _, e := range all {
				if k := e.key(); !want[k] && !left[k] && !e.Dismissed() {
					rt.Fatalf("%+v: %s is gone", f, k)
				}
			}
			p.check()
			if t.Failed() {
				rt.Fatalf("after %+v", f)
			}
		}
	})
	t.Logf("%d connections and %d templates were ended", ended[false], ended[true])
	// A hundred scripts end some 170 and 30; -short plays a fifth of them.
	if !testing.Short() && (ended[false] < 20 || ended[true] < 2) {
		t.Error("that is too few to say anything")
	}
}

// busy has a few clients talk to services of every kind, and servers answer.
func (p *player) busy(rt *rapid.T) {
	for range rapid.IntRange(5, 40).Draw(rt, "packets") {
		f := packet.Flow{
			Proto: rapid.SampledFrom([]packet.Proto{packet.TCP, packet.TCP, packet.TCP, packet.UDP, packet.SCTP}).Draw(rt, "protocol"),
			Src:   addr(fmt.Sprintf("198.51.100.%d", rapid.SampledFrom([]int{10, 10, 21, 130}).Draw(rt, "client"))), Dst: addr(vip),
			SrcPort: 40000 + uint16(rapid.IntRange(0, 5).Draw(rt, "port")), DstPort: rapid.SampledFrom([]uint16{80, 81, 82, 84, 84, 84, 87, 95, 21}).Draw(rt, "service"),
		}
		switch rapid.IntRange(0, 3).Draw(rt, "version") {
		case 0:
			f.Src, f.Dst = addr("2001:db8:1::10"), addr(vip6)
		case 1:
			if f.Proto == packet.UDP {
				f.Dst = addr("203.0.113.81")
			}
		}
		first := byte(packet.SYN)
		if f.Proto == packet.SCTP {
			first = 1
		}
		rest := p.s
		p.process(p.packet(f, rapid.SampledFrom([]byte{first, first, packet.ACK}).Draw(rt, "flags"), 0))
		if rapid.Bool().Draw(rt, "answered") && len(p.left) > 0 {
			p.s = &script{[]byte{0, 0, packet.SYN | packet.ACK, 0}} // the last that left
			p.answer()
		}
		p.s = rest
	}
	p.pass(time.Duration(rapid.IntRange(0, 40).Draw(rt, "pause")) * time.Second)
}

// entry is a listed connection with what a listing does not say.
type entry struct {
	dataplane.ConnStatus
	service lvs.ServiceKey
}

func (e entry) key() string {
	return fmt.Sprint(e.Template, e.Proto, e.Client, e.ClientPort, e.Virtual, e.VirtualPort, e.Dest, e.DestPort, e.Began, e.SourcePort)
}

func (e entry) Dismissed() bool { return e.Template && e.VirtualPort == 0xffff && e.DestPort == 0xffff }

// widened reports whether the filter's client is one of a template's net.
func (e entry) widened(a *arena, f conntrack.Filter) bool {
	if !e.Template || !f.Client.Net.IsValid() {
		return false
	}
	for _, s := range a.d.Ruleset().Services {
		if s.ServiceKey != e.service || s.Persist == 0 || s.Is4() != f.Client.Net.Addr().Is4() {
			continue
		}
		bits := s.MaskBits
		if bits == 0 {
			bits = f.Client.Net.Addr().BitLen()
		}
		net, err := f.Client.Net.Addr().Prefix(bits)
		return err == nil && net.Addr() == e.Client.Netip()
	}
	return false
}

func (p *player) listed() (all []entry) {
	for key, c := range p.d.ConnsOfServices {
		all = append(all, entry{c, key})
	}
	return all
}
