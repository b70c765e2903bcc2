package control

import (
	"net/netip"
	"strings"

	"pktdirector/packet"
)

// Names finds hosts and ports by name, and their names, as the C library does
// for ipvsadm. A nil *Names knows none, and writes numbers.
type Names struct {
	Host    func(name string) (netip.Addr, bool)
	Address func(netip.Addr) (name string, found bool)
	Port    func(name string, proto packet.Proto) (uint16, bool)
	Service func(port uint16, proto packet.Proto) (name string, found bool)
}

// StaticNames knows the hosts and the ports of TCP and of UDP of three tables.
func StaticNames(hosts map[string]netip.Addr, tcp, udp map[string]uint16) *Names {
	ports := map[packet.Proto]map[string]uint16{packet.TCP: tcp, packet.UDP: udp}
	type port struct {
		number uint16
		proto  packet.Proto
	}
	byAddr, byPort := map[netip.Addr]string{}, map[port]string{}
	for name, addr := range hosts {
		byAddr[addr] = name
	}
	for proto, table := range ports {
		for name, number := range table {
			byPort[port{number, proto}] = name
		}
	}
	return &Names{
		Host:    func(name string) (netip.Addr, bool) { addr, ok := hosts[name]; return addr, ok },
		Address: func(addr netip.Addr) (string, bool) { name, ok := byAddr[addr]; return name, ok },
		Port: func(name string, proto packet.Proto) (uint16, bool) {
			number, ok := ports[proto][name]
			return number, ok
		},
		Service: func(number uint16, proto packet.Proto) (string, bool) {
			name, ok := byPort[port{number, proto}]
			return name, ok
		},
	}
}

// Remembering is n that asks once for each host and address, for one goroutine.
func (n *Names) Remembering() *Names {
	m := *n
	m.Host = remembering(n.Host)
	m.Address = remembering(n.Address)
	return &m
}

func remembering[Key comparable, Value any](ask func(Key) (Value, bool)) func(Key) (Value, bool) {
	type answer struct {
		value Value
		found bool
	}
	known := map[Key]answer{}
	return func(k Key) (Value, bool) {
		a, asked := known[k]
		if !asked {
			a.value, a.found = ask(k)
			known[k] = a
		}
		return a.value, a.found
	}
}

func (n *Names) host(name string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(name); err == nil && ip.Is6() {
		return ip, ip.Zone() == ""
	}
	if ip, ok := inetAton(name); ok {
		return ip, true
	}
	if n == nil {
		return netip.Addr{}, false
	}
	return n.Host(name)
}

func (n *Names) port(name string, proto packet.Proto) (uint16, bool) {
	if n == nil {
		return 0, false
	}
	return n.Port(name, proto)
}

// endpoint writes an address and a port, by their names where they have some.
// An IPv6 host's name stands in brackets, too.
func (n *Names) endpoint(addr string, port uint16, proto packet.Proto) string {
	a := parseAddr(addr)
	text := packet.Endpoint(a, port)
	if n == nil {
		return text
	}
	at := strings.LastIndexByte(text, ':')
	host, number := text[:at], text[at+1:]
	if name, found := n.Address(a.Netip()); found {
		host = name
		if !a.Is4() {
			host = "[" + name + "]"
		}
	}
	if name, found := n.Service(port, proto); found {
		number = name
	}
	return host + ":" + number
}
