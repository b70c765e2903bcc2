package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"pktdirector/control"
	"pktdirector/packet"
)

// nameLookups is how long all lookups of one command may take together; after
// that, listings have numbers.
const nameLookups = 5 * time.Second

// systemNames asks this host's resolver and /etc/services, as ipvsadm does, for
// one command.
func systemNames(ctx context.Context) (*control.Names, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, nameLookups)
	var ports services
	if f, err := os.Open("/etc/services"); err == nil {
		ports = readServices(f)
		f.Close()
	}
	return &control.Names{
		Host: func(name string) (netip.Addr, bool) {
			all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
			if err != nil || len(all) == 0 {
				return netip.Addr{}, false
			}
			for _, a := range all { // IPv4 first, as ipvsadm looks for it
				if a = a.Unmap(); a.Is4() {
					return a, true
				}
			}
			return all[0], true
		},
		Address: func(a netip.Addr) (string, bool) {
			names, err := net.DefaultResolver.LookupAddr(ctx, a.String())
			if err != nil || len(names) == 0 {
				return "", false
			}
			return strings.TrimSuffix(names[0], "."), true
		},
		Port: func(name string, proto packet.Proto) (uint16, bool) {
			port, found := ports.port[service{name: name, proto: proto}]
			return port, found
		},
		Service: func(port uint16, proto packet.Proto) (string, bool) {
			name, found := ports.name[service{port: port, proto: proto}]
			return name, found
		},
	}, cancel
}

// service names a port, or the port of a name.
type service struct {
	name  string
	port  uint16
	proto packet.Proto
}

// services is what /etc/services says.
type services struct {
	port map[service]uint16
	name map[service]string
}

// readServices reads lines of the form "http 80/tcp www # comment" (services(5)).
// The first name of a port and the first port of a name count; lines that make no
// sense are passed over.
func readServices(r io.Reader) services {
	s := services{map[service]uint16{}, map[service]string{}}
	protocols := map[string]packet.Proto{"tcp": packet.TCP, "udp": packet.UDP, "sctp": packet.SCTP}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) < 2 {
			continue
		}
		number, word, _ := strings.Cut(words[1], "/")
		proto, known := protocols[word]
		port, err := strconv.ParseUint(number, 10, 16)
		if !known || err != nil || port == 0 {
			continue
		}
		if key := (service{port: uint16(port), proto: proto}); s.name[key] == "" {
			s.name[key] = words[0]
		}
		for _, name := range append(words[2:], words[0]) {
			if key := (service{name: name, proto: proto}); s.port[key] == 0 {
				s.port[key] = uint16(port)
			}
		}
	}
	return s
}
