package testbed

import (
	"fmt"
	"strings"
)

// LinkKind is what a lab's director forwards on.
type LinkKind string

// The kinds of links.
const (
	AFPacket LinkKind = "afpacket" // raw frames on the director's own NICs
	Tundev   LinkKind = "tundev"   // a TUN device that its kernel routes the VIP into
)

// Set reads a kind's name, for a command line flag.
func (k *LinkKind) Set(s string) error {
	switch got := LinkKind(s); got {
	case AFPacket, Tundev:
		*k = got
		return nil
	}
	return fmt.Errorf("link %q is not known: %s or %s is", s, AFPacket, Tundev)
}

// String returns the kind's name.
func (k *LinkKind) String() string { return string(*k) }

// Type names the flag's value in a help text.
func (k *LinkKind) Type() string { return "kind" }

// tundevName is the director's TUN device.
const tundevName = "vs0"

// DirectorYAML returns the configuration file of t's director.
func (t *Topology) DirectorYAML(kind LinkKind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The director of lab %s: %s.\nlinks:\n", t.Name, t.Title)
	if kind == Tundev {
		fmt.Fprintf(&b, "  - {name: %s, type: tundev}\n", tundevName)
	} else {
		for _, n := range t.With(Director)[0].NICs {
			fmt.Fprintf(&b, "  - {name: %s, type: afpacket}\n", n.Segment)
		}
	}
	b.WriteString("services:\n")
	for _, s := range []struct {
		proto string
		Service
	}{{"tcp", t.HTTP}, {"udp", t.Echo}} {
		fmt.Fprintf(&b, "  - vip: %s\n    protocol: %s\n    port: %d\n    scheduler: %s\n    method: %s\n    servers:\n",
			t.VIP, s.proto, s.Port, t.Scheduler, t.Mode.Short())
		for _, h := range t.With(RealServer) {
			fmt.Fprintf(&b, "      - {address: %s, port: %d, weight: %d}\n", h.Addr(), s.Listen(), h.Weight)
		}
	}
	return b.String()
}
