package control_test

import (
	"strings"
	"testing"

	"pktdirector/control"
)

// rich is a status with something of everything, its text as ipvsadm 1.31 prints
// it.
func rich() *control.Status {
	server := func(address string, port uint16, method string, weight int64) control.Destination {
		return control.Destination{Address: address, Port: port, Method: method, Weight: weight}
	}
	busy := server("10.2.0.1", 8080, "Masq", 3)
	busy.Active, busy.InAct, busy.Persistent, busy.Upper, busy.Lower = 4, 1, 2, 1000, 800
	return &control.Status{TableSize: control.DefaultTableSize, Services: []control.Service{
		{Protocol: "FWM", Mark: 8, IPv6: true, Scheduler: "wrr", Persist: 300, MaskBits: 64,
			Destinations: []control.Destination{server("2001:db8:2::4", 0, "Tunnel", 1), server("2001:db8:2::3", 0, "Route", 1)}},
		{Protocol: "FWM", Mark: 1<<32 - 1, Scheduler: "rr"},
		{Protocol: "TCP", VIP: "2001:db8:f::10", Port: 80, Scheduler: "mh", Flags: "mh-port"},
		{Protocol: "SCTP", VIP: "192.0.2.10", Port: 36412, Scheduler: "lc"},
		{Protocol: "UDP", VIP: "192.0.2.10", Port: 53, Scheduler: "rr", OnePacket: true},
		{Protocol: "TCP", VIP: "192.0.2.10", Port: 443, Scheduler: "sh", Flags: "sh-fallback,sh-port"},
		{Protocol: "TCP", VIP: "192.0.2.10", Port: 80, Scheduler: "wlc", Persist: 360, MaskBits: 24, Destinations: []control.Destination{busy}},
	}}
}

func TestListings(t *testing.T) {
	for name, test := range map[string]struct {
		write func(*strings.Builder) error
		want  string
	}{
		"-Ln": {func(b *strings.Builder) error { return control.WriteList(b, rich()) }, `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
FWM  -1 rr
TCP  192.0.2.10:80 wlc persistent 360 mask 255.255.255.0
  -> 10.2.0.1:8080                Masq    3      4          1         
TCP  192.0.2.10:443 sh (sh-fallback,sh-port)
UDP  192.0.2.10:53 rr ops
SCTP 192.0.2.10:36412 lc
TCP  [2001:db8:f::10]:80 mh (mh-port)
FWM  8 IPv6 wrr persistent 300 mask 64
  -> [2001:db8:2::3]:0            Route   1      0          0         
  -> [2001:db8:2::4]:0            Tunnel  1      0          0         
`},
		"-Ln --thresholds": {func(b *strings.Builder) error { return control.WriteThresholds(b, rich()) }, `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port            Uthreshold Lthreshold ActiveConn InActConn 
  -> RemoteAddress:Port
FWM  -1 rr
TCP  192.0.2.10:80 wlc persistent 360 mask 255.255.255.0
  -> 10.2.0.1:8080                1000       800        4          1         
`},
		"-Ln --persistent-conn": {func(b *strings.Builder) error { return control.WritePersistent(b, rich()) }, `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port            Weight    PersistConn ActiveConn InActConn 
  -> RemoteAddress:Port
FWM  -1 rr
TCP  192.0.2.10:80 wlc persistent 360 mask 255.255.255.0
  -> 10.2.0.1:8080                3         2           4          1         
`},
		"-Sn": {func(b *strings.Builder) error { return control.WriteSave(b, rich()) }, `-A -f -1 -s rr
-A -t 192.0.2.10:80 -s wlc -p 360 -M 255.255.255.0
-a -t 192.0.2.10:80 -r 10.2.0.1:8080 -m -w 3
-A -t 192.0.2.10:443 -s sh -b sh-fallback,sh-port
-A -u 192.0.2.10:53 -s rr -o
-A --sctp-service 192.0.2.10:36412 -s lc
-A -t [2001:db8:f::10]:80 -s mh -b mh-port
-A -f 8 -6 -s wrr -p 300 -M 64
-a -f 8 -6 -r [2001:db8:2::3]:0 -g -w 1
-a -f 8 -6 -r [2001:db8:2::4]:0 -i -w 1 --tun-type ipip
`},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := test.write(&b); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(b.String(), test.want) {
				t.Errorf("got\n%swant\n%s", b.String(), test.want)
			}
		})
	}
}
