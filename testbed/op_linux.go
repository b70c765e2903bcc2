package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Apply implements Op.
func (o RenameLink) Apply() error {
	l, err := netlink.LinkByName(o.From)
	if err != nil {
		return opError(o, err)
	}
	if err := netlink.LinkSetDown(l); err != nil { // a name changes only while down
		return opError(o, err)
	}
	return opError(o, netlink.LinkSetName(l, o.To))
}

// Apply implements Op.
func (o LinkUp) Apply() error {
	l, err := netlink.LinkByName(o.Dev)
	if err != nil {
		return opError(o, err)
	}
	return opError(o, netlink.LinkSetUp(l))
}

// Apply implements Op.
func (o AddAddr) Apply() error {
	l, err := netlink.LinkByName(o.Dev)
	if err != nil {
		return opError(o, err)
	}
	a := &netlink.Addr{IPNet: ipNet(o.Prefix)}
	if o.hostScope() {
		a.Scope = unix.RT_SCOPE_HOST
	}
	return opError(o, netlink.AddrReplace(l, a))
}

// Apply implements Op.
func (o AddRoute) Apply() error {
	return opError(o, netlink.RouteReplace(&netlink.Route{Dst: ipNet(o.To), Gw: o.Via.AsSlice()}))
}

// Apply implements Op.
func (o Sysctl) Apply() error {
	path := "/proc/sys/" + strings.ReplaceAll(o.Key, ".", "/")
	return opError(o, os.WriteFile(path, []byte(o.Value), 0))
}

// Apply implements Op.
func (o AddIPIP) Apply() error {
	l := &netlink.Iptun{LinkAttrs: attrs(o.Dev), Local: o.Local.AsSlice()}
	return addLink(o, l)
}

// Apply implements Op.
func (o AddTundev) Apply() error {
	return addLink(o, &netlink.Tuntap{LinkAttrs: attrs(o.Dev), Mode: netlink.TUNTAP_MODE_TUN})
}

// Apply implements Op.
func (o AddVeth) Apply() error {
	v := netlink.NewVeth(attrs(o.Dev))
	v.MTU = o.MTU
	v.PeerName, v.PeerMTU = o.Peer, uint32(o.MTU)
	return addLink(o, v)
}

// Apply implements Op.
func (o ProxyNeighbour) Apply() error {
	l, err := netlink.LinkByName(o.Dev)
	if err != nil {
		return opError(o, err)
	}
	return opError(o, netlink.NeighSet(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, Flags: netlink.NTF_PROXY, IP: o.Addr.AsSlice(),
	}))
}

// Apply implements Op.
func (o AddBridge) Apply() error {
	off := false
	if err := addLink(o, &netlink.Bridge{LinkAttrs: attrs(o.Dev), MulticastSnooping: &off}); err != nil {
		return err
	}
	if err := (Sysctl{"net.ipv6.conf." + o.Dev + ".disable_ipv6", "1"}).Apply(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return opError(o, err)
	}
	return LinkUp(o).Apply()
}

// Apply implements Op.
func (o PlugIn) Apply() error {
	bridge, err := netlink.LinkByName(o.Bridge)
	if err != nil {
		return opError(o, err)
	}
	v := netlink.NewVeth(attrs(o.Port))
	v.MasterIndex = bridge.Attrs().Index
	v.PeerName, v.PeerHardwareAddr, v.PeerNamespace = o.NIC, o.MAC.MAC[:], netlink.NsFd(o.Into)
	if err := addLink(o, v); err != nil {
		return err
	}
	if err := (Sysctl{"net.ipv6.conf." + o.Port + ".disable_ipv6", "1"}).Apply(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return opError(o, err)
	}
	return LinkUp{o.Port}.Apply()
}

// addLink makes an interface unless one of that name and kind is there.
func addLink(o Op, l netlink.Link) error {
	if there, err := netlink.LinkByName(l.Attrs().Name); err == nil && there.Type() == l.Type() {
		return nil
	}
	return opError(o, netlink.LinkAdd(l))
}

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// opError names the operation that an error belongs to; nil stays nil.
func opError(o Op, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", o, err)
}
