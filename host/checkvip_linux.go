package host

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"pktdirector/packet"
)

// askAtOnce bounds how many questions are out at a time: each is a socket.
const askAtOnce = 64

// claimed lists the addresses that the director is going to answer for.
func (c *checker) claimed() []packet.Addr {
	all := VIPs(c.Rules)
	for _, a := range c.Rules.SourceAddrs() {
		if _, _, own := c.owner(a); !own {
			all = append(all, a)
		}
	}
	return all
}

// role names an address that the director is going to answer for.
func (c *checker) role(a netip.Addr) string {
	if slices.Contains(VIPs(c.Rules), packet.AddrFrom(a)) {
		return "VIP " + a.String()
	}
	return "source address " + a.String()
}

// others asks the segments of the links whether another machine has a VIP or a
// source address.
func (c *checker) others(ctx context.Context) {
	var questions []*question
	for _, l := range c.Links {
		i := c.all.of(l)
		if l.Tundev || l.Local || i == nil || i.Attrs().Flags&net.FlagUp == 0 || i.Attrs().EncapType != "ether" {
			continue
		}
		for _, vip := range c.claimed() {
			// Where no socket can be opened, other findings tell why.
			if q, err := openQuestion(i.Attrs().Name, vip.Netip()); err == nil {
				questions = append(questions, q)
			}
			if len(questions) == askAtOnce {
				c.askAll(ctx, questions)
				questions = nil
			}
		}
	}
	c.askAll(ctx, questions)
}

// askAll asks all questions at once.
func (c *checker) askAll(ctx context.Context, questions []*question) {
	answers := make([][]packet.MAC, len(questions))
	var wg sync.WaitGroup
	for n, q := range questions {
		wg.Go(func() {
			defer q.conn.Close()
			answers[n], _ = q.ask(ctx, checkWait) // a link that fails is found elsewhere
		})
	}
	wg.Wait()
	for n, macs := range answers {
		if len(macs) == 0 {
			continue
		}
		var list []string
		for _, m := range macs {
			list = append(list, m.String())
		}
		c.find(Fault, "take the address from that machine, or give a DR server arp_ignore=1 and arp_announce=2 before its VIP",
			"%s: another machine on %s answers for it (%s)", c.role(questions[n].target), questions[n].dev, strings.Join(list, ", "))
	}
}
