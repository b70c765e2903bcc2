package dataplane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// Sharing between shards, and neighbours: the field cases to the letter.

// Field case 6: the round is the service's, not the shard's.
func TestEightShardsShareOneRound(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 4))
	got, shards := map[int]int{}, map[uintptr]bool{}
	for port := uint16(10000); len(shards) < 8; port++ {
		if port == 60000 {
			t.Fatalf("50000 client ports fall into %d shards, want 8", len(shards))
		}
		shard := w.d.ShardOf(packet.TCP, addr(client), port)
		if shards[shard] {
			continue
		}
		shards[shard] = true
		got[serverOf(one(t, w.in(clientLink, w.syn(fmt.Sprint(port)))))]++
	}
	for i := 1; i <= 4; i++ {
		if got[i] != 2 {
			t.Errorf("8 connections in 8 shards: %v, want 2 per server", got)
			break
		}
	}
}

// Field case 6: 400 connections, whatever the number of shards; also when each
// is complete before the next begins, so that only the counts tell wlc whose
// turn it is.
func TestShardsDoNotChangeShares(t *testing.T) {
	for _, scheduler := range []string{"rr", "wrr", "lc", "wlc"} {
		for _, shards := range []int{1, 2, 8} {
			for _, m := range methods() {
				t.Run(fmt.Sprintf("%s %s with %d shards", scheduler, m.Short(), shards), func(t *testing.T) {
					w := newShardedWorld(t, shards, service(scheduler, m, 4))
					used := map[uintptr]bool{}
					got := map[int]int{}
					for port := range uint16(400) {
						used[w.d.ShardOf(packet.TCP, addr(client), 10000+port)] = true
						got[w.establish(fmt.Sprint(10000+port))]++
					}
					if len(used) != shards {
						t.Errorf("%d shards used, want %d", len(used), shards)
					}
					for i := 1; i <= 4; i++ {
						if got[i] != 100 {
							t.Errorf("%v, want 100 each", got)
							break
						}
					}
					for _, d := range w.d.Status()[0].Destinations {
						if d.Active != 100 || d.InAct != 0 || d.Stats.Conns != 100 {
							t.Errorf("%v shows %d active, %d inactive, %d connections", d.Server, d.Active, d.InAct, d.Stats.Conns)
						}
					}
				})
			}
		}
	}
}

// onVLAN is a SYN that came with a VLAN's tag.
func (w *world) onVLAN(id uint16, clientPort string) *packet.Packet {
	p := w.syn(clientPort)
	p.Tagged, p.VLAN, p.VLANType = true, id, packet.EtherVLAN
	return p
}

// Field case 21: on a trunk one address may be another machine on each VLAN.
func TestANeighbourIsOfItsVLAN(t *testing.T) {
	trunk := func(t *testing.T) *world {
		w := newWorld(t)
		w.d.SetHost(dataplane.HostTable{
			Routes: []dataplane.Route{{Dst: mustPrefix("0.0.0.0/0"), Link: clientLink}},
			Addrs:  []dataplane.LinkAddr{{Link: clientLink, Prefix: mustPrefix("192.0.2.254/24")}},
		})
		w.apply(service("rr", lvs.Route, 1))
		return w
	}
	vlans := []uint16{100, 200}
	t.Run("known by the host", func(t *testing.T) {
		w := trunk(t)
		for i, id := range vlans {
			w.d.Learn(dataplane.Neighbour{Link: clientLink, VLAN: id, Addr: addr(rip(1)), MAC: serverMAC(i + 1)})
		}
		for i, id := range vlans {
			out := one(t, w.in(clientLink, w.onVLAN(id, fmt.Sprint(40000+i))))
			if out.DstMAC != serverMAC(i+1) || !out.Tagged || out.VLAN != id {
				t.Errorf("from VLAN %d: left to %v, tagged %t with %d", id, out.DstMAC, out.Tagged, out.VLAN)
			}
		}
	})
	t.Run("asked for, and learned, on its own VLAN", func(t *testing.T) {
		w := trunk(t)
		for i, id := range vlans {
			ask := one(t, w.in(clientLink, w.onVLAN(id, fmt.Sprint(40000+i))))
			if !isRequestFor(ask, rip(1)) || !ask.Tagged || ask.VLAN != id {
				t.Fatalf("from VLAN %d: asked with %v, tagged %t with %d", id, ask.Flow, ask.Tagged, ask.VLAN)
			}
		}
		for i, id := range vlans {
			answer := arpPacket(2, serverMAC(i+1), rip(1), "192.0.2.254")
			answer.Tagged, answer.VLAN, answer.VLANType = true, id, packet.EtherVLAN
			out := one(t, w.in(clientLink, answer))
			if out.DstMAC != serverMAC(i+1) || !out.Tagged || out.VLAN != id || out.Flow.SrcPort != uint16(40000+i) {
				t.Errorf("VLAN %d answered: %v left to %v, tagged %t with %d", id, out.Flow, out.DstMAC, out.Tagged, out.VLAN)
			}
		}
		for i, id := range vlans { // the first is not overwritten by the second
			if out := one(t, w.in(clientLink, w.onVLAN(id, fmt.Sprint(40010+i)))); out.DstMAC != serverMAC(i+1) || out.VLAN != id {
				t.Errorf("from VLAN %d afterwards: left to %v with tag %d", id, out.DstMAC, out.VLAN)
			}
		}
	})
	t.Run("an untagged frame's neighbour is none of a VLAN's", func(t *testing.T) {
		w := trunk(t)
		w.d.Learn(dataplane.Neighbour{Link: clientLink, VLAN: 100, Addr: addr(rip(1)), MAC: serverMAC(1)})
		if out := one(t, w.in(clientLink, w.syn("40000"))); !isRequestFor(out, rip(1)) || out.Tagged {
			t.Errorf("left to %v, tagged %t: want an untagged request", out.DstMAC, out.Tagged)
		}
	})
}

// Field case 25: three requests, one a second, however many packets come
// meanwhile; then the packets are dropped.
func TestRequestsAreOneASecond(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "ARP", true: "neighbour discovery"}[v6], func(t *testing.T) {
			w := newWorld(t, service("rr", lvs.Route, 1), service6("rr", lvs.Route, 1))
			w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1))})
			w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip6(1))})
			isRequest := func(p *packet.Packet) bool { return isRequestFor(p, rip(1)) }
			syn := func(i int) *packet.Packet { return w.syn(fmt.Sprint(40000 + i)) }
			if v6 {
				isRequest = func(p *packet.Packet) bool {
					return p.Flow.Proto == packet.ICMPv6 && p.Buf[p.L4] == 135 && packet.AddrFrom16(p.Buf[p.L4+8:]) == addr(rip6(1))
				}
				syn = func(i int) *packet.Packet {
					return packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("[%s]:%d", client6, 40000+i), Dst: "[" + vip6 + "]:80", Flags: packet.SYN})
				}
			}
			var asked []time.Duration
			note := func(out []*packet.Packet) {
				for _, p := range out {
					if !isRequest(p) {
						t.Fatalf("at %v left %v", w.now, p.Flow)
					}
					asked = append(asked, w.now)
				}
			}
			const step = 10 * time.Millisecond
			for i := range 20 { // 200 ms of SYNs
				note(w.in(clientLink, syn(i)))
				w.now += step
			}
			for w.now < 2900*time.Millisecond {
				w.now += step
				note(copies(w.w.Tick(w.now)))
			}
			if want := []time.Duration{0, time.Second, 2 * time.Second}; !slices.Equal(asked, want) {
				t.Errorf("asked at %v, want %v", asked, want)
			}
			w.wantVerdict(dataplane.NoNeighbour, 0)
			for w.now < 10*time.Second {
				w.now += step
				note(copies(w.w.Tick(w.now)))
				if w.now == 3*time.Second {
					w.wantVerdict(dataplane.NoNeighbour, 20)
				}
			}
			if len(asked) != 3 {
				t.Errorf("asked again without a packet: at %v", asked)
			}
			w.wantVerdict(dataplane.NoNeighbour, 20)
			note(w.in(clientLink, syn(30)))
			if len(asked) != 4 || asked[3] != w.now {
				t.Errorf("the next SYN at %v: asked at %v", w.now, asked)
			}
		})
	}
}
