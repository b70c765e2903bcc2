package control_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

func TestTunnelsOnTheCommandLine(t *testing.T) {
	const server = "-a -t 192.0.2.10:80 -r 10.2.0.1 "
	for options, want := range map[string]lvs.TunnelInfo{
		"-i":                                                {},
		"-i --tun-type ipip":                                {},
		"-i --tun-type gre":                                 {Type: lvs.GRE},
		"-i --tun-type gre --tun-nocsum":                    {Type: lvs.GRE},
		"-i --tun-type gre --tun-csum":                      {Type: lvs.GRE, Checksum: lvs.Checksum},
		"--tun-type=gue --tun-port=1 -i":                    {Type: lvs.GUE, Port: 1},
		"-i --tun-type gue --tun-port 65535":                {Type: lvs.GUE, Port: 65535},
		"-i --tun-port 6 --tun-csum --tun-type gue":         {Type: lvs.GUE, Port: 6, Checksum: lvs.Checksum},
		"-i --tun-type gue --tun-port 6080 --tun-remcsum":   {Type: lvs.GUE, Port: 6080, Checksum: lvs.RemoteChecksum},
		"-w 3 --tun-type gue --tun-port 6080 -i --tun-csum": {Type: lvs.GUE, Port: 6080, Checksum: lvs.Checksum},
	} {
		c, err := control.ParseCommand(strings.Fields(server+options), wellKnown())
		if err != nil || c.Server.Tunnel != want {
			t.Errorf("%s: %+v, %v; want %+v", options, c.Server.Tunnel, err, want)
		}
	}
	for options, want := range map[string]string{
		"-i --tun-type gue":                            "You need to supply the 'tun-port' option for the 'gue' tunnel type",
		"-g --tun-type gue --tun-port 6080":            "Tunnel options conflict with forward method",
		"--tun-type gre":                               "Tunnel options conflict with forward method",
		"-m --tun-csum":                                "Tunnel options conflict with forward method",
		"-i --tun-type ipip --tun-csum":                "Illegal 'tun-csum' option with the 'ipip' tunnel type",
		"-i --tun-port 6080":                           "Illegal 'tun-port' option with the 'ipip' tunnel type",
		"-i --tun-type gre --tun-port 6080":            "Illegal 'tun-port' option with the 'gre' tunnel type",
		"-i --tun-type gre --tun-remcsum":              "Illegal 'tun-remcsum' option with the 'gre' tunnel type",
		"-i --tun-type vxlan":                          "illegal tunnel type specified",
		"-i --tun-type gue --tun-port 0":               "illegal tunnel port specified",
		"-i --tun-type gue --tun-port 65536":           "illegal tunnel port specified",
		"-i --tun-type gue --tun-port http":            "illegal tunnel port specified",
		"-i --tun-type gue --tun-port 6080 --tun-info": "Illegal 'tun-info' option with the 'add-server' command",
	} {
		_, err := control.ParseCommand(strings.Fields(server+options), wellKnown())
		var refusal *control.CommandError
		if !errors.As(err, &refusal) || refusal.Code != 2 || refusal.Text != want {
			t.Errorf("%s: %v, want 2 %s", options, err, want)
		}
	}
}

// tunnels is a service with every kind of tunnel, through the conversion that
// listings take.
func tunnels() *control.Status {
	server := func(last byte, m lvs.Method, t lvs.TunnelInfo) lvs.DestinationStatus {
		rip := packet.AddrFrom4([]byte{10, 2, 0, last})
		return lvs.DestinationStatus{Server: lvs.ServerKey{RIP: rip, Port: 80}, Method: m, Tunnel: t, Weight: 1}
	}
	return &control.Status{TableSize: control.DefaultTableSize, Services: control.ServicesOf([]lvs.ServiceStatus{{
		Service:   lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80},
		Scheduler: "rr",
		Destinations: []lvs.DestinationStatus{
			server(1, lvs.Tunnel, lvs.TunnelInfo{}),
			server(2, lvs.Tunnel, lvs.TunnelInfo{Type: lvs.GRE}),
			server(3, lvs.Tunnel, lvs.TunnelInfo{Type: lvs.GRE, Checksum: lvs.Checksum}),
			server(4, lvs.Tunnel, lvs.TunnelInfo{Type: lvs.GUE, Port: 6080}),
			server(5, lvs.Tunnel, lvs.TunnelInfo{Type: lvs.GUE, Port: 6080, Checksum: lvs.Checksum}),
			server(6, lvs.Tunnel, lvs.TunnelInfo{Type: lvs.GUE, Port: 65535, Checksum: lvs.RemoteChecksum}),
			server(7, lvs.Route, lvs.TunnelInfo{}),
		},
	}})}
}

func TestTunnelsInListings(t *testing.T) {
	var info, save strings.Builder
	if err := errors.Join(control.WriteTunnelInfo(&info, tunnels()), control.WriteSave(&save, tunnels())); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward TunnelInfo    Weight ActiveConn InActConn
TCP  192.0.2.10:80 rr
  -> 10.2.0.1:80                  Tunnel  ipip          1      0          0         
  -> 10.2.0.2:80                  Tunnel  gre:-c        1      0          0         
  -> 10.2.0.3:80                  Tunnel  gre:+c        1      0          0         
  -> 10.2.0.4:80                  Tunnel  gue:6080:-c   1      0          0         
  -> 10.2.0.5:80                  Tunnel  gue:6080:+c   1      0          0         
  -> 10.2.0.6:80                  Tunnel  gue:65535:r+c 1      0          0         
  -> 10.2.0.7:80                  Route   n/a           1      0          0         
`, info.String()); diff != "" {
		t.Errorf("--tun-info (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(`-A -t 192.0.2.10:80 -s rr
-a -t 192.0.2.10:80 -r 10.2.0.1:80 -i -w 1 --tun-type ipip
-a -t 192.0.2.10:80 -r 10.2.0.2:80 -i -w 1 --tun-type gre --tun-nocsum
-a -t 192.0.2.10:80 -r 10.2.0.3:80 -i -w 1 --tun-type gre --tun-csum
-a -t 192.0.2.10:80 -r 10.2.0.4:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-a -t 192.0.2.10:80 -r 10.2.0.5:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-csum
-a -t 192.0.2.10:80 -r 10.2.0.6:80 -i -w 1 --tun-type gue --tun-port 65535 --tun-remcsum
-a -t 192.0.2.10:80 -r 10.2.0.7:80 -g -w 1
`, save.String()); diff != "" {
		t.Errorf("-S (-want +got):\n%s", diff)
	}
}

// What is saved is read back as the same tunnel.
func TestSavedTunnelsComeBack(t *testing.T) {
	var save strings.Builder
	if err := control.WriteSave(&save, tunnels()); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(save.String()) {
		if _, err := control.ParseCommand(strings.Fields(line), wellKnown()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

const tunneled = `links:
  - name: eth0
services:
  - vip: 192.0.2.10
    protocol: tcp
    port: 80
    clamp_mss: true
    method: tun
    servers:
      - {address: 10.2.0.1}
      - {address: 10.2.0.2, tunnel: {type: gre}}
      - {address: 10.2.0.3, tunnel: {type: gre, checksum: csum}}
      - {address: 10.2.0.4, tunnel: {type: gue, port: 6080}}
      - {address: 10.2.0.5, tunnel: {type: gue, port: 6081, checksum: remcsum}}
      - {address: "2001:db8::6", tunnel: {type: ipip}}
`

func TestTunnelsInTheConfiguration(t *testing.T) {
	c, err := control.Parse("d.yaml", []byte(tunneled))
	if err != nil {
		t.Fatal(err)
	}
	want := []lvs.TunnelInfo{{}, {Type: lvs.GRE}, {Type: lvs.GRE, Checksum: lvs.Checksum}, {Type: lvs.GUE, Port: 6080},
		{Type: lvs.GUE, Port: 6081, Checksum: lvs.RemoteChecksum}, {}}
	svc := c.Ruleset.Services[0]
	for i, rs := range svc.Servers {
		if rs.Tunnel != want[i] || rs.Method != lvs.Tunnel {
			t.Errorf("servers[%d]: %v %+v, want %+v", i, rs.Method, rs.Tunnel, want[i])
		}
	}
	if !svc.ClampMSS {
		t.Error("clamp_mss was not read")
	}
	if err := c.Ruleset.Validate(func(string) bool { return true }); err != nil {
		t.Error(err)
	}
	back, text := printedAndRead(t, c)
	if diff := cmp.Diff(c, back, opaque()); diff != "" {
		t.Errorf("printed and read again (-want +got):\n%s\n%s", diff, text)
	}
}

func TestTunnelsInTheConfigurationRefused(t *testing.T) {
	for name, tt := range map[string]struct{ old, new, want string }{
		"an unknown type":                  {"type: gre}", "type: vxlan}", `d.yaml:11:44: services[0].servers[1].tunnel.type: tunnel type "vxlan" is not known: write ipip, gue or gre`},
		"no type":                          {"{type: gre}", "{checksum: csum}", `services[0].servers[1].tunnel: type is missing: ipip, gue or gre`},
		"a word in place of the mapping":   {"{type: gre}", "gre", `services[0].servers[1].tunnel: must be a mapping with the keys type, port, checksum, not "gre"`},
		"an unknown key":                   {"{type: gre}", "{type: gre, csum: true}", `tunnel.csum: is not known here: the keys are type, port, checksum`},
		"gue without a port":               {"type: gue, port: 6080", "type: gue", `services[0].servers[3].tunnel: port is missing: the UDP port at which the server takes gue`},
		"port 0":                           {"port: 6080", "port: 0", `0 is out of range: 1 to 65535`},
		"gre with a port":                  {"{type: gre}", "{type: gre, port: 6080}", `tunnel.port: only gue has a port, gre has none: leave it out`},
		"gre with remcsum":                 {"checksum: csum", "checksum: remcsum", `tunnel.checksum: only gue can have remcsum: write csum or nocsum`},
		"ipip with a checksum":             {"{type: ipip}", "{type: ipip, checksum: nocsum}", `tunnel.checksum: an ipip tunnel has no checksum: leave it out`},
		"an unknown checksum":              {"checksum: csum", "checksum: crc", `tunnel checksum "crc" is not known: write nocsum, csum or remcsum`},
		"a boolean checksum":               {"checksum: csum", "checksum: true", `tunnel.checksum: `},
		"a tunnel in NAT":                  {"{address: 10.2.0.2, ", "{address: 10.2.0.2, method: nat, ", `services[0].servers[1].tunnel: the server's method is nat, and only tun has tunnels`},
		"the other IP version in DR":       {`"2001:db8::6", tunnel: {type: ipip}`, `"2001:db8::6", method: dr`, `2001:db8::6 is of another IP version than the VIP 192.0.2.10, which only tun can bridge`},
		"clamp_mss that is neither":        {"clamp_mss: true", "clamp_mss: 1360", `d.yaml:7:16: services[0].clamp_mss: "1360" is neither true nor false`},
		"clamp_mss in words of other YAML": {"clamp_mss: true", "clamp_mss: yes", `"yes" is neither true nor false`},
	} {
		_, err := control.Parse("d.yaml", []byte(strings.Replace(tunneled, tt.old, tt.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v\nwant %s", name, err, tt.want)
		}
	}
}
