package host

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// interfaces is a reading of the host's interface list.
type interfaces []netlink.Link

func listInterfaces() (interfaces, error) {
	l, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return l, nil
}

func (all interfaces) named(name string) netlink.Link {
	for _, i := range all {
		if i.Attrs().Name == name {
			return i
		}
	}
	return nil
}

func (all interfaces) index(n int) netlink.Link {
	for _, i := range all {
		if i.Attrs().Index == n {
			return i
		}
	}
	return nil
}

// vlans returns the VLAN interfaces on top of parent; id 0 means all of them.
func (all interfaces) vlans(parent netlink.Link, id uint16) []netlink.Link {
	var on []netlink.Link
	for _, i := range all {
		v, ok := i.(*netlink.Vlan)
		if ok && v.ParentIndex == parent.Attrs().Index && (id == 0 || v.VlanId == int(id)) {
			on = append(on, i)
		}
	}
	return on
}

// of returns the interface whose addresses, routes and neighbours are those
// of link l: the interface itself, the VLAN interface on top of it that has
// the link's id, or the bridge it is a port of. nil when the host has none.
func (all interfaces) of(l Link) netlink.Link {
	i := all.named(l.Name)
	if i == nil {
		return nil
	}
	if l.VLAN != 0 {
		if on := all.vlans(i, l.VLAN); len(on) > 0 {
			return on[0]
		}
		return nil
	}
	if m := all.index(i.Attrs().MasterIndex); m != nil && m.Type() == "bridge" {
		return m
	}
	return i
}

// guardedInterfaces names every interface by which the host's kernel would
// see frames that arrive on the links. A tundev's own packets are the
// director's output and must reach the host.
func guardedInterfaces(links []Link) ([]string, error) {
	all, err := listInterfaces()
	if err != nil {
		return nil, err
	}
	var names []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, l := range links {
		if l.Tundev || l.Local {
			continue
		}
		if l.VLAN == 0 {
			add(l.Name)
		}
		if i := all.named(l.Name); i != nil {
			for _, v := range all.vlans(i, l.VLAN) {
				add(v.Attrs().Name)
			}
		}
		if i := all.of(l); i != nil {
			add(i.Attrs().Name)
		}
	}
	return names, nil
}
