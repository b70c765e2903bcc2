package control_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// request is what Debian's ipvsadm 1.31 asked the kernel for, by setsockopt(2), when
// it was given a command line.
type request struct {
	Args         []string
	Op           int // the socket option: IP_VS_SO_SET_ADD and so on, from the base on
	Protocol     packet.Proto
	VIP          string
	Port         uint16
	FWMark       uint32
	Scheduler    string
	Flags        uint32
	Timeout      int
	Netmask      string
	Server       string
	ServerPort   uint16 `json:"server_port"`
	ConnFlags    uint32 `json:"conn_flags"`
	Weight       int
	Upper, Lower uint32
	Timeouts     []int
}

// TestCommandsMeanWhatIpvsadmAsksTheKernelFor reads the command lines and compares
// what they mean. It is here that one sees what ipvsadm makes of what is not named:
// -e without a method asks for direct routing (field case 23).
func TestCommandsMeanWhatIpvsadmAsksTheKernelFor(t *testing.T) {
	var all []request
	if err := json.Unmarshal([]byte(read(t, "testdata/ipvsadm-requests.json")), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 90 {
		t.Fatalf("%d requests", len(all))
	}
	ops := map[byte]int{'A': 2, 'E': 3, 'D': 4, 'C': 5, 'a': 7, 'd': 8, 'e': 9, 's': 10, '-': 12, 'Z': 15}
	methods := map[lvs.Method]uint32{lvs.Masq: 0, lvs.Tunnel: 2, lvs.Route: 3}
	for _, r := range all {
		c, err := control.ParseCommand(r.Args, wellKnown())
		line := strings.Join(r.Args, " ")
		if err != nil || ops[c.Op] != r.Op {
			t.Errorf("%s: %c, %v; ipvsadm asks for %d", line, c.Op, err, r.Op)
			continue
		}
		s, rs := c.Service, c.Server
		differs := false
		switch c.Op {
		case 's':
			for i, seconds := range r.Timeouts {
				differs = differs || c.Set[i] != time.Duration(seconds)*time.Second
			}
		case 'A', 'E':
			flags := uint32(s.Flags) << 3 // IP_VS_SVC_F_SCHED1 and so on
			if s.Persist != 0 {
				flags |= 1
			}
			if s.OnePacket {
				flags |= 4
			}
			differs = s.Scheduler != r.Scheduler || flags != r.Flags || s.Persist != time.Duration(r.Timeout)*time.Second
			// A mask without persistence says nothing, and is not kept.
			differs = differs || s.Persist != 0 && mask(&s) != r.Netmask
		case 'a', 'e':
			differs = methods[rs.Method] != r.ConnFlags || rs.Weight != r.Weight || rs.Upper != r.Upper || rs.Lower != r.Lower
			fallthrough
		case 'd':
			differs = differs || rs.ServerKey != lvs.ServerKey{RIP: packet.MustParseAddr(r.Server), Port: r.ServerPort}
		}
		if c.Named && c.Op != 's' {
			key := lvs.ServiceKey{Mark: r.FWMark}
			if r.FWMark == 0 {
				key = lvs.ServiceKey{Proto: r.Protocol, VIP: packet.MustParseAddr(r.VIP), Port: r.Port}
			}
			differs = differs || s.ServiceKey != key
		}
		if differs {
			t.Errorf("%s: means %+v and %+v; ipvsadm asks for %+v", line, s, rs, r)
		}
	}
}

// mask is a persistent service's as the kernel is told it.
func mask(s *lvs.VirtualService) string {
	switch {
	case s.Netmask.IsValid():
		return s.Netmask.String()
	case s.MaskBits == 0:
		return "255.255.255.255"
	}
	return net.IP(net.CIDRMask(s.MaskBits, 32)).String()
}
