package host

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Touches reports whether the host's kernel, left alone, would answer or
// forward what the director handles, and why.
func Touches(p Plan) (why string, yes bool) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Sprintf("its addresses cannot be read (%v)", err), true
	}
	has := func(a packet.Addr) bool {
		return slices.ContainsFunc(addrs, func(have netlink.Addr) bool {
			own, ok := prefixOf(have.IPNet)
			return ok && packet.AddrFrom(own.Addr()) == a
		})
	}
	v4, v6 := false, false
	for i := range p.Rules.Services {
		v4, v6 = v4 || p.Rules.Services[i].Is4(), v6 || !p.Rules.Services[i].Is4()
	}
	for _, vip := range VIPs(p.Rules) {
		if has(vip) {
			return fmt.Sprintf("it has the VIP %s", vip), true
		}
	}
	for _, s := range p.Rules.Services {
		for _, rs := range s.Servers {
			if rs.Method == lvs.FullNAT && len(s.Sources.Addrs) == 0 {
				return "it has the address that FullNAT servers answer to", true
			}
		}
	}
	for _, source := range p.Rules.SourceAddrs() {
		if has(source) {
			return fmt.Sprintf("it has the source address %s", source), true
		}
	}
	for _, f := range []struct {
		serves bool
		name   string
	}{{v4, "ipv4/ip_forward"}, {v6, "ipv6/conf/all/forwarding"}} {
		if v, err := readSysctl("/proc/sys/net/" + f.name); f.serves && err == nil && v != "0" {
			return fmt.Sprintf("it forwards (%s=%s)", f.name, v), true
		}
	}
	return "", false
}
