package control

import (
	"fmt"
	"io"
	"iter"
	"net/netip"
	"strings"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// The headings of ipvsadm 1.31's listings. The version is that of the kernel's
// IPVS, whose behaviour the director keeps to.
const (
	ipvsadmVersion = "IP Virtual Server version 1.2.1 (size=%d)\n"
	listHeading    = "Prot LocalAddress:Port Scheduler Flags\n" +
		"  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n"
	statsHeading = "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\n" +
		"  -> RemoteAddress:Port\n"
	rateHeading = "Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS\n" +
		"  -> RemoteAddress:Port\n"
	thresholdHeading = "Prot LocalAddress:Port            Uthreshold Lthreshold ActiveConn InActConn \n" +
		"  -> RemoteAddress:Port\n"
	persistentHeading = "Prot LocalAddress:Port            Weight    PersistConn ActiveConn InActConn \n" +
		"  -> RemoteAddress:Port\n"
	tunnelInfoHeading = "Prot LocalAddress:Port Scheduler Flags\n" +
		"  -> RemoteAddress:Port           Forward TunnelInfo    Weight ActiveConn InActConn\n"
	connHeading = "IPVS connection entries\n" +
		"pro expire state       source             virtual            destination\n"
)

// DefaultTableSize is the size ipvsadm shows for a kernel built with the
// default of 2^12 hash buckets; the director's own table has none to show.
const DefaultTableSize = 4096

// WriteList writes s as "ipvsadm -Ln" prints it, byte for byte.
func WriteList(w io.Writer, s *Status) error { return writeServices(w, s, plainList()) }

// WriteStats writes s as "ipvsadm -Ln --stats" prints it.
func WriteStats(w io.Writer, s *Status) error { return writeServices(w, s, statsList(false)) }

// WriteRates writes s as "ipvsadm -Ln --rate" prints it.
func WriteRates(w io.Writer, s *Status) error { return writeServices(w, s, rateList(false)) }

// WriteThresholds writes s as "ipvsadm -Ln --thresholds" prints it.
func WriteThresholds(w io.Writer, s *Status) error { return writeServices(w, s, thresholdList()) }

// WritePersistent writes s as "ipvsadm -Ln --persistent-conn" prints it.
func WritePersistent(w io.Writer, s *Status) error { return writeServices(w, s, persistentList()) }

// statColumns writes five counters; exact ones without suffixes (--exact).
func statColumns(s lvs.Stats, exact bool) string {
	column := large
	if exact {
		column = func(n uint64) string { return fmt.Sprintf(" %8d", n) }
	}
	return column(s.Conns) + column(s.InPkts) + column(s.OutPkts) + column(s.InBytes) + column(s.OutBytes)
}

// large formats a counter in 9 columns with ipvsadm's suffixes
// (print_largenum): from 10^8 on in thousands, and so on.
func large(n uint64) string {
	switch {
	case n < 100_000_000:
		return fmt.Sprintf("%9d", n)
	case n < 100_000_000_000:
		return fmt.Sprintf("%8dK", n/1_000)
	case n < 100_000_000_000_000:
		return fmt.Sprintf("%8dM", n/1_000_000)
	case n < 100_000_000_000_000_000:
		return fmt.Sprintf("%8dG", n/1_000_000_000)
	}
	return fmt.Sprintf("%8dT", n/1_000_000_000_000)
}

// WriteConnections writes connections as they come, as "ipvsadm -Lcn" prints them. It
// ends with the first error.
func WriteConnections(w io.Writer, conns iter.Seq2[Connection, error]) error {
	return listConnections(w, conns, nil, false)
}

// ListConnections is WriteConnections as the command line of "ipvsadm -Lc" says it,
// with names as it has them.
func (c *Command) ListConnections(w io.Writer, conns iter.Seq2[Connection, error], names *Names) error {
	if c.Numeric {
		names = nil
	}
	return listConnections(w, conns, names, c.List.Persistent)
}

// listConnections writes hosts and ports by their names, and with engines the
// heading of --persistent-conn.
func listConnections(w io.Writer, conns iter.Seq2[Connection, error], names *Names, engines bool) error {
	heading := connHeading
	if engines {
		heading = strings.TrimSuffix(heading, "\n") + "        pe name          pe_data\n"
	}
	for c, err := range conns {
		if err != nil {
			return err
		}
		proto := protoNumber(c.Protocol)
		before := heading // of the first alone, when it is known that there is somebody to ask
		heading = ""
		if _, err := fmt.Fprintf(w, "%s%-3s %02d:%02d  %-11s %-18s %-18s %s\n", before, c.Protocol, c.Expires/60, c.Expires%60, c.State,
			names.endpoint(c.Client, c.ClientPort, proto), names.endpoint(c.VIP, c.Port, proto), names.endpoint(c.Destination, c.DestinationPort, proto)); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, heading)
	return err
}

// WriteVerdicts writes how many packets ended in which way, those that none
// ended in too: a table of name, count and meaning.
func WriteVerdicts(w io.Writer, verdicts []Verdict) error {
	var b strings.Builder
	width := len("verdict")
	for _, v := range verdicts {
		width = max(width, len(v.Name))
	}
	fmt.Fprintf(&b, "%-*s %12s  meaning\n", width, "verdict", "packets")
	for _, v := range verdicts {
		fmt.Fprintf(&b, "%-*s %12d  %s\n", width, v.Name, v.Count, v.Help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// parseAddr reads an address that the director itself printed.
func parseAddr(s string) packet.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return packet.Addr{}
	}
	return packet.AddrFrom(a)
}
