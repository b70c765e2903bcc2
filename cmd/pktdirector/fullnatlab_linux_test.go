package main

import (
	"fmt"
	"strings"
	"testing"

	"pktdirector/testbed/nstest"
)

// way is a forwarding with more keys of its service.
type way struct {
	forwarding
	service string
}

// fullNATs are ways to the real server over core, where its gateway is the
// router, not the director: from the director's own address, or from one that is
// the director's alone, with and without a TCP option about the client.
func fullNATs() []way {
	var all []way
	for _, v := range []struct{ vip, rip, source string }{{labVIP4, backRIP4, "10.3.0.200"}, {labVIP6, backRIP6, "2001:db8:4::c8"}} {
		for _, toa := range []string{"false", "true"} {
			server := fmt.Sprintf("address: %q, method: fullnat", v.rip)
			all = append(all,
				way{forwarding{fmt.Sprintf("own address, %s, toa %s", v.vip, toa), v.vip, server}, "    toa: " + toa + "\n"},
				way{forwarding{fmt.Sprintf("source %s, toa %s", v.source, toa), v.vip, server},
					fmt.Sprintf("    toa: %s\n    sources: [%q]\n    source_ports: 1024-65535\n", toa, v.source)})
		}
	}
	return all
}

// TestFullNATCarriesTCPFromServersOfAnotherGateway: with all offloads on, 100 kB
// each way arrive as they were sent, though the servers' default gateway is not
// the director; the host's own kernel, which forwards and has the VIP's segment,
// resets nothing. Behind a path MTU of 1400, 200 kB arrive without a stall.
func TestFullNATCarriesTCPFromServersOfAnotherGateway(t *testing.T) {
	nstest.New(t)
	l := newTunnelLab(t)
	for _, f := range fullNATs() {
		t.Run(f.name, func(t *testing.T) {
			l.balance(t, f.forwarding, f.service)
			for range 3 {
				l.move(t, f.forwarding, "upload", 100_000)
				l.move(t, f.forwarding, "download", 100_000)
			}
			list, _ := exitCode(t, l.Lab, "director", "list")
			if !strings.Contains(list, " FullNat 1 ") {
				t.Errorf("list shows other than the method:\n%s", list)
			}
			if conns, _ := exitCode(t, l.Lab, "director", "list", "-c", "--json"); !strings.Contains(conns, `"source_port":`) {
				t.Errorf("list -c --json does not show the source:\n%s", conns)
			}
		})
	}
	l = l.narrowed(t, 1400)
	for _, f := range fullNATs() {
		t.Run(f.name+", narrow", func(t *testing.T) {
			l.balance(t, f.forwarding, f.service)
			l.upload(t, f.forwarding, 200_000)
		})
	}
}
