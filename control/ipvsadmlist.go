package control

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
)

// listing is one of ipvsadm's lists of services.
type listing struct {
	heading string
	service func(*Service) string     // the service's line behind its name
	server  func(*Destination) string // the server's line behind its name
	wide    bool                      // the service's name fills its column
	names   *Names                    // of hosts and ports; nil: numbers

	// unsorted keeps servers in the order of the schedulers' list (--nosort).
	// Services are sorted all the same: a kernel lists them by their place in a
	// hash table of its own.
	unsorted bool
}

func plainList() *listing {
	return &listing{heading: listHeading, service: serviceWords, server: func(d *Destination) string {
		return fmt.Sprintf(" %-7s %-6d %-10d %-10d", d.Method, d.Weight, d.Active, d.InAct)
	}}
}

func statsList(exact bool) *listing {
	return &listing{heading: statsHeading, wide: true,
		service: func(s *Service) string { return statColumns(s.Stats, exact) },
		server:  func(d *Destination) string { return statColumns(d.Stats, exact) }}
}

func rateList(exact bool) *listing {
	return &listing{heading: rateHeading, wide: true,
		service: func(s *Service) string { return statColumns(s.Rates, exact) },
		server:  func(d *Destination) string { return statColumns(d.Rates, exact) }}
}

func thresholdList() *listing {
	return &listing{heading: thresholdHeading, service: serviceWords, server: func(d *Destination) string {
		return fmt.Sprintf(" %-10d %-10d %-10d %-10d", d.Upper, d.Lower, d.Active, d.InAct)
	}}
}

func persistentList() *listing {
	return &listing{heading: persistentHeading, service: serviceWords, server: func(d *Destination) string {
		return fmt.Sprintf(" %-9d %-11d %-10d %-10d", d.Weight, d.Persistent, d.Active, d.InAct)
	}}
}

// writeServices writes a listing of all services.
func writeServices(w io.Writer, s *Status, l *listing) error {
	if _, err := fmt.Fprintf(w, ipvsadmVersion, s.TableSize); err != nil {
		return err
	}
	return l.write(w, s.Services)
}

func (l *listing) write(w io.Writer, services []Service) error {
	var b strings.Builder
	services = sortServices(services, l.unsorted)
	b.WriteString(l.heading)
	for i := range services {
		svc := &services[i]
		name := fmt.Sprintf("%-4s %s", svc.Protocol, svc.name(l.names))
		if l.wide {
			name = fmt.Sprintf("%-33s", name)
		}
		b.WriteString(name + l.service(svc) + "\n")
		for j := range svc.Destinations {
			d := &svc.Destinations[j]
			fmt.Fprintf(&b, "  -> %-28s%s\n", l.names.endpoint(d.Address, d.Port, protoNumber(svc.Protocol)), l.server(d))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// name writes what follows the protocol: "192.0.2.10:80", "7" or "8 IPv6".
func (s *Service) name(names *Names) string {
	switch {
	case s.Mark == 0:
		return names.endpoint(s.VIP, s.Port, protoNumber(s.Protocol))
	case s.IPv6:
		return fmt.Sprintf("%d IPv6", int32(s.Mark))
	}
	return fmt.Sprint(int32(s.Mark))
}

// is6 reports whether the service is for IPv6.
func (s *Service) is6() bool { return s.IPv6 || s.Mark == 0 && !parseAddr(s.VIP).Is4() }

// mask writes the persistence netmask, or "" where every address counts.
func (s *Service) mask() string {
	switch {
	case s.Netmask != "":
		return s.Netmask
	case s.MaskBits == 0:
		return ""
	case s.is6():
		if s.MaskBits == 128 {
			return ""
		}
		return fmt.Sprint(s.MaskBits)
	case s.MaskBits == 32:
		return ""
	}
	ip, _ := netip.AddrFromSlice(net.CIDRMask(s.MaskBits, 32))
	return ip.String()
}

// serviceWords writes scheduler, persistence, one-packet scheduling and flags.
func serviceWords(s *Service) string {
	words := " " + s.Scheduler
	if s.Persist != 0 {
		words += fmt.Sprintf(" persistent %d", s.Persist)
		if mask := s.mask(); mask != "" {
			words += " mask " + mask
		}
	}
	if s.Engine != "" {
		words += " pe " + s.Engine
	}
	if s.OnePacket {
		words += " ops"
	}
	if s.Flags != "" {
		words += " (" + s.Flags + ")"
	}
	return words
}

// WriteSave writes s as "ipvsadm -Sn" does: commands that restore it.
func WriteSave(w io.Writer, s *Status) error { return writeSave(w, s, nil) }

func writeSave(w io.Writer, s *Status, names *Names) error {
	var b strings.Builder
	for _, svc := range sortServices(s.Services, false) {
		key := svc.option(names)
		fmt.Fprintf(&b, "-A %s -s %s", key, svc.Scheduler)
		if svc.Persist != 0 {
			fmt.Fprintf(&b, " -p %d", svc.Persist)
			if mask := svc.mask(); mask != "" {
				b.WriteString(" -M " + mask)
			}
		}
		if svc.Engine != "" {
			b.WriteString(" --pe " + svc.Engine)
		}
		if svc.OnePacket {
			b.WriteString(" -o")
		}
		if svc.Flags != "" {
			b.WriteString(" -b " + svc.Flags)
		}
		b.WriteString("\n")
		for _, d := range svc.Destinations {
			fmt.Fprintf(&b, "-a %s -r %s %s -w %d%s\n", key, names.endpoint(d.Address, d.Port, protoNumber(svc.Protocol)), methodOption(d.Method), d.Weight, tunnelOption(&d))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// option writes the service as ipvsadm takes it: "-t 192.0.2.10:80", "-f 8 -6".
func (s *Service) option(names *Names) string {
	switch {
	case s.Mark != 0 && s.IPv6:
		return fmt.Sprintf("-f %d -6", int32(s.Mark))
	case s.Mark != 0:
		return fmt.Sprintf("-f %d", int32(s.Mark))
	}
	letter := map[string]string{"TCP": "-t", "UDP": "-u", "SCTP": "--sctp-service"}[s.Protocol]
	return letter + " " + s.name(names)
}

func methodOption(word string) string {
	switch word {
	case "Masq":
		return "-m"
	case "Tunnel":
		return "-i"
	case "FullNat":
		return "--fullnat"
	}
	return "-g"
}
