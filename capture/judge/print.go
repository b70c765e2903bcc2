package judge

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// PrintOptions say how much Print prints.
type PrintOptions struct {
	Connections int // listed at most; below 0: all
}

// Print writes the report for people: findings first, worst first.
func (r *Report) Print(out io.Writer, o PrintOptions) error {
	w := bufio.NewWriter(out)
	vips := strings.Join(r.VIPs, ", ")
	if vips == "" {
		vips = "not known"
	}
	method := r.Mode
	if r.Tunnel != "" {
		method += " (" + r.Tunnel + ")"
	}
	fmt.Fprintf(w, "mode %s, VIP %s: %s in %s, %.3f s\n", method, vips, count(len(r.Connections), "connection"), count(int(r.Packets), "packet"), r.Seconds)
	for _, s := range r.Services {
		vip := s.VIP
		if vip == "" {
			vip = "(not in the capture)"
		}
		fmt.Fprintf(w, "\n%s %s %s", s.Protocol, vip, s.Mode)
		if len(s.Explained) > 0 {
			fmt.Fprintf(w, ", picks as by %s", strings.Join(s.Explained, ", "))
		}
		fmt.Fprintln(w)
		for _, v := range s.Servers {
			fmt.Fprintf(w, "  -> %-28s %17s", v.Address, count(v.Connections, "connection"))
			if v.Failed > 0 {
				fmt.Fprintf(w, ", %d failed", v.Failed)
			}
			fmt.Fprintln(w)
		}
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(w, "\nnothing is wrong")
	} else {
		fmt.Fprintf(w, "\n%s:\n", count(len(r.Findings), "finding, the likely cause first"))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "\n%s: %s\n", f.Code, f.Text)
		if len(f.Packets) > 0 {
			fmt.Fprintf(w, "  packets: %s\n", strings.Trim(fmt.Sprint(f.Packets), "[]"))
		}
		fmt.Fprintf(w, "  next: %s\n", f.Next)
	}
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "note: %s\n", n)
	}
	r.printConnections(w, o)
	return w.Flush()
}

func (r *Report) printConnections(w io.Writer, o PrintOptions) {
	if len(r.Connections) == 0 || o.Connections == 0 {
		return
	}
	fmt.Fprintf(w, "\n%10s  %-5s %-28s %-24s %-24s %s\n", "seconds", "proto", "client", "vip", "server", "packet")
	for i, c := range r.Connections {
		if o.Connections > 0 && i >= o.Connections {
			fmt.Fprintf(w, "... and %d more (--list -1 shows all)\n", len(r.Connections)-i)
			return
		}
		fmt.Fprintf(w, "%10.3f  %-5s %-28s %-24s %-24s %v", c.Start, c.Protocol, c.Client, orDash(c.VIP), orDash(c.Server), c.Packet)
		if c.Finding != "" {
			fmt.Fprintf(w, "  %s", c.Finding)
		}
		fmt.Fprintln(w)
	}
}

// count is a number with what is counted, in the plural unless it is one; what stands
// behind a comma stays.
func count(n int, what string) string {
	if n != 1 {
		noun, rest, cut := strings.Cut(what, ",")
		if what = noun + "s"; cut {
			what += "," + rest
		}
	}
	return fmt.Sprintf("%d %s", n, what)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
