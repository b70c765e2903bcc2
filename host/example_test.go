package host_test

import (
	"fmt"

	"pktdirector/host"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// What the host must leave to the director: requests to the service, and the
// replies of its NAT server.
func ExampleRulesFor() {
	g := host.RulesFor([]host.Link{{Name: "eth0"}}, lvs.Ruleset{Services: []lvs.VirtualService{{
		ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80},
		Servers: []lvs.RealServer{
			{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.1"), Port: 8080}, Method: lvs.Masq, Weight: 1},
			{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.2"), Port: 80}, Method: lvs.Route, Weight: 1},
		},
	}}})
	fmt.Println(g.Served)
	fmt.Println(g.Replies[0].Proto, packet.Endpoint(g.Replies[0].RIP, g.Replies[0].Ports.From))
	// Output:
	// [TCP 192.0.2.10:80]
	// TCP 10.2.0.1:8080
}
