package main

import (
	"strings"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// What a server without return traffic is told of depends on who waits for it.
func TestWordsOfNoReturnTraffic(t *testing.T) {
	u := dataplane.Unanswered{
		Service: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80},
		Server:  lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.1"), Port: 8080}, Connections: 4,
		Client: packet.MustParseAddr("198.51.100.7"), ClientPort: 40000,
	}
	for _, c := range []struct {
		name             string
		beside, answered int
		want             []string
	}{
		{"all wait", 0, 0, []string{"for 4 half-open connections (198.51.100.7:40000 is one), and for no other", "make the director the real server's default gateway"}},
		{"others are answered", 0, 9, []string{"though 9 others are answered", "another route to these clients"}},
		{"some are beside it", 3, 9, []string{"of 3 the client is on-link with the real server (198.51.100.7)", "route 198.51.100.7 to the director"}},
	} {
		u.Beside, u.Answered = c.beside, c.answered
		d := noReturn(u)
		text := d.Text + "; " + d.Remedy
		if !strings.HasPrefix(text, "TCP 192.0.2.10:80, server 10.2.0.1:8080: no return traffic through the director") {
			t.Errorf("%s: %s", c.name, text)
		}
		for _, part := range c.want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is not in %q", c.name, part, text)
			}
		}
	}
	if got := serviceName(lvs.ServiceKey{Mark: 7, V6: true}); got != "FWM 7 IPv6" {
		t.Errorf("a firewall mark is named %q", got)
	}
}
