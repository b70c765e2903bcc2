package testbed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/lvs"
)

// sabotages returns what FindSabotage knows, by name.
func sabotages() map[string]func(*Lab) error {
	return map[string]func(*Lab) error{
		"director-stopped":     func(l *Lab) error { return l.director().Stop() },
		"director-killed":      func(l *Lab) error { l.director().Kill(); return nil },
		"vip-missing":          (*Lab).removeVIP,
		"arp-open":             (*Lab).openARP,
		"replies-lost":         (*Lab).loseReplies,
		"replies-past":         (*Lab).routeInsteadOfNAT,
		"replies-via-director": (*Lab).repliesViaDirector,
		"reset":                (*Lab).provokeReset,
		"loss":                 (*Lab).lose,
		"mtu-blackhole":        (*Lab).swallow,
	}
}

// FindSabotage returns a way to break a lab, so that a demonstration in it
// must fail; nil when the name is empty.
func FindSabotage(name string) (func(*Lab) error, error) {
	if name == "" {
		return nil, nil
	}
	all := sabotages()
	if s, ok := all[name]; ok {
		return s, nil
	}
	return nil, fmt.Errorf("sabotage %q is not known: one of %s is", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}

// removeVIP takes the VIP from the last real server, whose kernel then has no
// use for what comes in.
func (l *Lab) removeVIP() error {
	dev := "lo"
	if l.Topology.Mode.Method == lvs.Tunnel {
		dev = DecapDevice
	}
	return l.Do(l.lastServer().Name, func() error {
		link, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(netip.PrefixFrom(l.Topology.VIP, l.Topology.VIP.BitLen()).String())
		if err != nil {
			return err
		}
		return netlink.AddrDel(link, addr)
	})
}

// openARP lets the first real server answer ARP for the VIP.
func (l *Lab) openARP() error {
	return l.Do(l.Topology.With(RealServer)[0].Name, Sysctl{"net.ipv4.conf.all.arp_ignore", "0"}.Apply)
}

// loseReplies lets the last real server send its replies past a director
// that would have to translate them: the client does not know them.
func (l *Lab) loseReplies() error {
	gateway := l.Topology.With(Director)[0].Gateway
	return l.defaultRoute(l.lastServer(), gateway)
}

// routeInsteadOfNAT puts a director that works by direct routing in the place
// of one that should masquerade, and makes the servers fit: connections work,
// but replies do not pass the director.
func (l *Lab) routeInsteadOfNAT() error {
	for _, p := range slices.Backward(l.procs) {
		if err := p.Stop(); err != nil {
			return err
		}
	}
	dr := *l.Topology
	dr.Mode.Method = lvs.Route
	dr.HTTP.ServerPort, dr.Echo.ServerPort = 0, 0
	l.Topology = &dr
	for _, h := range dr.With(RealServer) {
		if err := l.configure(h); err != nil {
			return err
		}
		if err := l.defaultRoute(h, dr.With(Director)[0].Gateway); err != nil {
			return err
		}
	}
	if err := l.StartServers(context.Background()); err != nil {
		return err
	}
	_, err := l.StartDirector(context.Background())
	return err
}

// repliesViaDirector makes the director's host the gateway of the servers that
// should reply past it.
func (l *Lab) repliesViaDirector() error {
	director := l.Topology.With(Director)[0]
	err := l.Do(director.Name, func() error {
		return errors.Join(
			Sysctl{"net.ipv4.ip_forward", "1"}.Apply(),
			// The host would tell the servers the shorter way.
			Sysctl{"net.ipv4.conf.all.send_redirects", "0"}.Apply(),
			Sysctl{"net.ipv4.conf." + director.NICs[0].Segment + ".send_redirects", "0"}.Apply())
	})
	for _, h := range l.Topology.With(RealServer) {
		err = errors.Join(err, l.defaultRoute(h, director.Addr()))
	}
	return err
}

// defaultRoute changes a host's gateway.
func (l *Lab) defaultRoute(h *Host, via netip.Addr) error {
	return l.Do(h.Name, AddRoute{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: via}.Apply)
}

// provokeReset makes the client see an RST: it knocks at a closed port of a
// real server.
func (l *Lab) provokeReset() error {
	closed := net.JoinHostPort(l.Topology.With(RealServer)[0].Addr().String(), "9")
	return l.Do(l.client(), func() error {
		c, err := net.DialTimeout("tcp", closed, time.Second)
		if err == nil {
			return errors.Join(fmt.Errorf("%s is not closed", closed), c.Close())
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		return nil
	})
}

// What lose loses: some percent of the packets that carry much.
const (
	lossPercent = 20
	lossBytes   = 1000 // of a packet, from which on it may be lost
)

// lose makes the kernels of client and real servers drop data by lot.
func (l *Lab) lose() error {
	var errs []error
	for _, h := range append(l.Topology.With(Client), l.Topology.With(RealServer)...) {
		errs = append(errs, l.Do(h.Name, dropByLot))
	}
	return errors.Join(errs...)
}

// swallow makes the last real server's kernel drop large packets without a word,
// as a link with a small MTU does behind a firewall that drops ICMP.
func (l *Lab) swallow() error {
	return l.Do(l.lastServer().Name, func() error { return dropLarge(nil) })
}

// dropByLot does what "nft add rule ... ip length >= 1000 numgen random mod 100
// < 20 drop" does, for what comes in to the calling thread's host.
func dropByLot() error {
	return dropLarge([]expr.Any{
		&expr.Numgen{Register: 1, Modulus: 100, Type: unix.NFT_NG_RANDOM},
		// The number comes in the host's order, a comparison is by bytes.
		&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: binary.BigEndian.AppendUint32(nil, lossPercent)},
	})
}

// dropLarge drops the packets of lossBytes and more that come in to the calling
// thread's host and that lot lets drop.
func dropLarge(lot []expr.Any) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: "sabotage", Family: nftables.TableFamilyIPv4})
	chain := c.AddChain(&nftables.Chain{Name: "loss", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	rule := []expr.Any{
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 2, Len: 2, DestRegister: 1}, // total length
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: binary.BigEndian.AppendUint16(nil, lossBytes)},
	}
	rule = append(append(rule, lot...), &expr.Verdict{Kind: expr.VerdictDrop})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

// lastServer returns the real server with the greatest weight.
func (l *Lab) lastServer() *Host {
	all := l.Topology.With(RealServer)
	return all[len(all)-1]
}
