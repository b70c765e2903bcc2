package control

import (
	"fmt"
	"io"
	"iter"
	"strings"

	"pktdirector/lvs"
)

// jiffies is how many of the kernel's clock ticks a second has in its files
// here: HZ of Debian's kernels. Persistence timeouts are in them.
const jiffies = 250

// ProcFiles are the kernel's files about IPVS that WriteProc writes.
func ProcFiles() []string {
	return []string{"/proc/net/ip_vs", "/proc/net/ip_vs_conn", "/proc/net/ip_vs_conn_sync", "/proc/net/ip_vs_stats"}
}

// WriteProc writes what one of the kernel's files (ProcFiles) would say:
// addresses, ports and totals are in hex.
func WriteProc(w io.Writer, file string, s *Status, conns iter.Seq[Connection]) error {
	var b strings.Builder
	switch file {
	case "/proc/net/ip_vs":
		procServices(&b, s)
	case "/proc/net/ip_vs_conn":
		b.WriteString("Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n")
		for c := range conns {
			fmt.Fprintf(&b, "%s %-11s %7d\n", procTuple(&c), c.State, c.Expires)
		}
	case "/proc/net/ip_vs_conn_sync":
		b.WriteString("Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Origin Expires\n")
		for c := range conns {
			fmt.Fprintf(&b, "%s %-11s %-6s %7d\n", procTuple(&c), c.State, "LOCAL", c.Expires)
		}
	case "/proc/net/ip_vs_stats":
		const counters = "%8X %8X %8X %16X %16X\n"
		columns := func(n lvs.Stats) { fmt.Fprintf(&b, counters, n.Conns, n.InPkts, n.OutPkts, n.InBytes, n.OutBytes) }
		b.WriteString("   Total Incoming Outgoing         Incoming         Outgoing\n" +
			"   Conns  Packets  Packets            Bytes            Bytes\n")
		columns(s.Stats)
		b.WriteString("\n Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s\n")
		columns(s.Rates)
	default:
		return fmt.Errorf("%s: there is no such file here: %s are there", file, strings.Join(ProcFiles(), ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func procServices(b *strings.Builder, s *Status) {
	fmt.Fprintf(b, ipvsadmVersion, s.TableSize)
	b.WriteString("Prot LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n")
	for i := range s.Services {
		svc := &s.Services[i]
		ops := ""
		if svc.OnePacket {
			ops = "ops "
		}
		switch {
		case svc.Mark != 0:
			fmt.Fprintf(b, "FWM  %08X %s %s", svc.Mark, svc.Scheduler, ops)
		case svc.is6():
			fmt.Fprintf(b, "%s  %s %s ", svc.Protocol, procEndpoint(svc.VIP, svc.Port), svc.Scheduler)
		default:
			fmt.Fprintf(b, "%s  %s %s %s ", svc.Protocol, procEndpoint(svc.VIP, svc.Port), svc.Scheduler, ops)
		}
		if svc.Persist != 0 {
			fmt.Fprintf(b, "persistent %d %08X", svc.Persist*jiffies, svc.procMask())
		}
		b.WriteByte('\n')
		for _, d := range svc.Destinations {
			fmt.Fprintf(b, "  -> %s      %-7s %-6d %-10d %-10d\n", procEndpoint(d.Address, d.Port), d.Method, d.Weight, d.Active, d.InAct)
		}
	}
}

// procMask is the persistence netmask as the kernel's file has it: the mask of
// IPv4, and the prefix length of IPv6 in the other byte order.
func (s *Service) procMask() uint32 {
	bits := s.MaskBits
	switch {
	case s.is6() && bits == 0:
		return 128 << 24
	case s.is6():
		return uint32(bits) << 24
	case s.Netmask != "":
		return parseAddr(s.Netmask).V4()
	case bits == 0:
		return 1<<32 - 1
	}
	return ^uint32(0) << (32 - bits)
}

// procAddr writes an address without separators: C000020A, or the eight groups
// of IPv6 in full.
func procAddr(addr string) string {
	ip := parseAddr(addr).Netip()
	if ip.Is4() {
		return fmt.Sprintf("%X", ip.As4())
	}
	return ip.StringExpanded()
}

func procEndpoint(addr string, port uint16) string {
	if !parseAddr(addr).Is4() {
		return fmt.Sprintf("[%s]:%04X", procAddr(addr), port)
	}
	return fmt.Sprintf("%s:%04X", procAddr(addr), port)
}

// procTuple writes protocol, client, virtual and real server of a connection.
func procTuple(c *Connection) string {
	return fmt.Sprintf("%-3s %s %04X %s %04X %s %04X", c.Protocol, procAddr(c.Client), c.ClientPort,
		procAddr(c.VIP), c.Port, procAddr(c.Destination), c.DestinationPort)
}
