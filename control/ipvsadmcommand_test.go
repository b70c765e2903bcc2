package control_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

func TestParseCommandReadsWhatIpvsadmReads(t *testing.T) {
	vip, vip6 := packet.MustParseAddr("192.0.2.10"), packet.MustParseAddr("2001:db8:f::10")
	tcp80 := lvs.ServiceKey{Proto: packet.TCP, VIP: vip, Port: 80}
	tests := map[string]struct {
		line    string
		service lvs.VirtualService
		server  lvs.RealServer // zero: not looked at
	}{
		"a service's scheduler is wlc by default":    {"-A -t 192.0.2.10:80", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "wlc"}, lvs.RealServer{}},
		"-p without a value":                         {"-A -t 192.0.2.10:80 -s rr -p", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "rr", Persist: 360 * time.Second}, lvs.RealServer{}},
		"-p in front of another option":              {"-A -p -t 192.0.2.10:80", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "wlc", Persist: 360 * time.Second}, lvs.RealServer{}},
		"values joined to letters":                   {"-At192.0.2.10:80 -ssh -bsh-port,sh-fallback -p60 -M255.255.0.0", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "sh", Flags: lvs.FlagPort | lvs.FlagFallback, Persist: time.Minute, MaskBits: 16}, lvs.RealServer{}},
		"long words":                                 {"--add-service --tcp-service=192.0.2.10:http --scheduler mh --sched-flags mh-port", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "mh", Flags: lvs.FlagPort}, lvs.RealServer{}},
		"one-packet scheduling":                      {"-A -u 192.0.2.10:80 -o", lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.UDP, VIP: vip, Port: 80}, Scheduler: "wlc", OnePacket: true}, lvs.RealServer{}},
		"SCTP":                                       {"-A --sctp-service 192.0.2.10:80", lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.SCTP, VIP: vip, Port: 80}, Scheduler: "wlc"}, lvs.RealServer{}},
		"IPv6 with a prefix length":                  {"-A -t [2001:db8:f::10]:80 -p 5 -M 64", lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: vip6, Port: 80}, Scheduler: "wlc", Persist: 5 * time.Second, MaskBits: 64}, lvs.RealServer{}},
		"a firewall mark of IPv6":                    {"-A -f 3 -6", lvs.VirtualService{ServiceKey: lvs.ServiceKey{Mark: 3, V6: true}, Scheduler: "wlc"}, lvs.RealServer{}},
		"a mask without persistence counts for none": {"-A -t 192.0.2.10:80 -M 255.255.255.0", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "wlc"}, lvs.RealServer{}},
		"a server takes the service's port": {"-a -t 192.0.2.10:80 -r 10.2.0.1 -m", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "wlc"},
			lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.1"), Port: 80}, Method: lvs.Masq, Weight: 1}},
		"only masquerading has a port of its own": {"-a -t 192.0.2.10:80 -r 10.2.0.1:8080 -w 0 -x 9 -y 4", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "wlc"},
			lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.1"), Port: 80}, Method: lvs.Route, Upper: 9, Lower: 4}},
		"a tunnel may lead to the other IP version": {"-e -t 192.0.2.10:80 -r [2001:db8:2::1]:80 -i", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "wlc"},
			lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr("2001:db8:2::1"), Port: 80}, Method: lvs.Tunnel, Weight: 1}},
		"a server is deleted by its port": {"-d -t 192.0.2.10:80 -r 10.2.0.1:8080", lvs.VirtualService{ServiceKey: tcp80, Scheduler: "wlc"},
			lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.1"), Port: 8080}, Method: lvs.Route, Weight: 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := control.ParseCommand(strings.Fields(test.line), wellKnown())
			if err != nil {
				t.Fatal(err)
			}
			got := c.Service
			if len(got.Servers) != 0 || got.ServiceKey != test.service.ServiceKey || got.Scheduler != test.service.Scheduler || got.Flags != test.service.Flags ||
				got.Persist != test.service.Persist || got.MaskBits != test.service.MaskBits || got.OnePacket != test.service.OnePacket {
				t.Errorf("service %+v, want %+v", got, test.service)
			}
			if test.server != (lvs.RealServer{}) && c.Server != test.server {
				t.Errorf("server %+v, want %+v", c.Server, test.server)
			}
		})
	}
}

func TestParseCommandRefusesInIpvsadmsWords(t *testing.T) {
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"-A -s rr":            {2, "You need to supply the 'service-address' option for the 'add-service' command"},
		"-a -t 192.0.2.10:80": {2, "You need to supply the 'real-server' option for the 'add-server' command"},
		"-a -t 192.0.2.10:80 -r 10.2.0.8:80 -s rr":             {2, "Illegal 'scheduler' option with the 'add-server' command"},
		"-A -t 192.0.2.10:85 -u 192.0.2.10:86 -s rr":           {2, "multiple 'service-address' options specified"},
		"-A -D -t 192.0.2.10:80":                               {2, "invalid option `-D'"},
		"-A -t 999.1.1.1:80":                                   {2, "illegal virtual server address[:port] specified"},
		"-A -t 192.0.2.10:70000":                               {2, "illegal virtual server address[:port] specified"},
		"-A -t 192.0.2.10: -s rr":                              {2, "illegal virtual server address[:port] specified"},
		"-A -t 192.0.2.10:-1 -s rr":                            {2, "illegal virtual server address[:port] specified"},
		"-A -t 192.0.2.10:0 -s rr":                             {2, "Zero port specified for non-persistent service"},
		"-A -t 192.0.2.10:83 -s rr -o":                         {2, "One-Packet Scheduling is only for UDP virtual services"},
		"-A -t 192.0.2.10:84 -s rr -b sh-port":                 {2, "incompatible scheduler flag `sh-port'"},
		"-A -t 192.0.2.10:81 -s rr -p 0":                       {2, "invalid timeout value `0' specified"},
		"-A -t 192.0.2.10:81 -s rr -p 2678401":                 {2, "invalid timeout value `2678401' specified"},
		"-A -f 0 -s rr":                                        {2, "invalid fwmark value `0' specified"},
		"-A -f 0x10 -s rr":                                     {2, "invalid fwmark value `0x10' specified"},
		"-A -t 192.0.2.10:88 -s":                               {255, "-s: missing argument"},
		"-a -t 192.0.2.10:80 -r 10.2.0.1:80 -w abc":            {2, "illegal weight specified"},
		"-a -t 192.0.2.10:80 -r 10.2.0.1:80 -w 2147483648":     {2, "illegal weight specified"},
		"-a -t 192.0.2.10:80 -r 10.2.0.54:80 -x 4294967295":    {2, "illegal u_threshold specified"},
		"-a -t 192.0.2.10:80 -r 10.2.0.41:99999 -m":            {2, "illegal real server address[:port] specified"},
		"-a -t 192.0.2.10:80 -r [2001:db8:2::1] -m":            {2, "illegal real server address[:port] specified"},
		"-a -t 192.0.2.10:80 -r [2001:db8:2::1]:80 -m":         {2, "Different address family is allowed only for tunneling servers"},
		"-a -t 192.0.2.10:80 -r 10.2.0.8:80 -i --tun-type gue": {2, "You need to supply the 'tun-port' option for the 'gue' tunnel type"},
		"-C extra":     {2, "unexpected argument extra"},
		"-Lcn --stats": {2, "options conflicts in the list command"},
		"-X":           {255, "Try `ipvsadm -h' or 'ipvsadm --help' for more information."},
		"-p 10":        {255, "Try `ipvsadm -h' or 'ipvsadm --help' for more information."},
		"--set 1 2":    {2, "--set option requires 3 timeout values"},
		"--set a b c":  {2, "invalid timeout value `a' specified"},
		"--set -1 2 3": {255, "-1: unknown option"},
	} {
		t.Run(line, func(t *testing.T) {
			_, err := control.ParseCommand(strings.Fields(line), wellKnown())
			var refusal *control.CommandError
			if !errors.As(err, &refusal) || refusal.Code != want.code || refusal.Text != want.text {
				t.Errorf("got %v, want %d %s", err, want.code, want.text)
			}
		})
	}
}

// FuzzParseCommand feeds lines to the parser: it reads them or refuses them with
// an exit code.
func FuzzParseCommand(f *testing.F) {
	for _, line := range []string{"-A -t 192.0.2.10:80 -s rr -p 5 -M 255.0.0.0", "-a -f 1 -6 -r [2001:db8::1]:80 -i -w 3", "--set 1 2 3", "-Lcn", "-", "--", "-At"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		_, err := control.ParseCommand(strings.Fields(line), wellKnown())
		var refusal *control.CommandError
		if err != nil && (!errors.As(err, &refusal) || refusal.Code != 2 && refusal.Code != 255) {
			t.Errorf("%q: %v", line, err)
		}
	})
}
