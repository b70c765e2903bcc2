package host

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"pktdirector/packet"
)

// Touches reports whether the host's kernel, left alone, would answer or
// forward what the director handles, and why.
func Touches(p Plan) (why string, yes bool) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Sprintf("its addresses cannot be read (%v)", err), true
	}
	v4, v6 := false, false
	for i := range p.Rules.Services {
		v4, v6 = v4 || p.Rules.Services[i].Is4(), v6 || !p.Rules.Services[i].Is4()
	}
	for _, vip := range VIPs(p.Rules) {
		for _, a := range addrs {
			if own, ok := prefixOf(a.IPNet); ok && packet.AddrFrom(own.Addr()) == vip {
				return fmt.Sprintf("it has the VIP %s", vip), true
			}
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
