package conntrack_test

import (
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

func TestTCPStates(t *testing.T) {
	const (
		S = packet.SYN
		A = packet.ACK
		F = packet.FIN
		R = packet.RST
	)
	type seg struct {
		dir   conntrack.Direction
		flags uint8
	}
	q := func(f uint8) seg { return seg{conntrack.Request, f} }
	r := func(f uint8) seg { return seg{conntrack.Reply, f} }
	tests := []struct {
		name     string
		method   lvs.Method
		segments []seg
		want     conntrack.State
		active   bool
		timeout  time.Duration
	}{
		{"a first SYN is active", lvs.Masq, []seg{q(S)}, conntrack.SynRecv, true, 60 * time.Second},
		{"the server's SYN+ACK changes nothing", lvs.Masq, []seg{q(S), r(S | A)}, conntrack.SynRecv, true, 60 * time.Second},
		{"the client's ACK establishes", lvs.Masq, []seg{q(S), r(S | A), q(A)}, conntrack.Established, true, 900 * time.Second},
		{"NAT, the client closes first", lvs.Masq, []seg{q(S), r(S | A), q(A), q(F | A)}, conntrack.CloseWait, false, 60 * time.Second},
		{"NAT, both have closed", lvs.Masq, []seg{q(S), r(S | A), q(A), q(F | A), r(F | A)}, conntrack.TimeWait, false, 120 * time.Second},
		{"NAT, the server closes first", lvs.Masq, []seg{q(S), r(S | A), q(A), r(F | A)}, conntrack.FinWait, false, 120 * time.Second},
		{"DR sees the client's FIN only", lvs.Route, []seg{q(S), q(A), q(F | A), q(A)}, conntrack.FinWait, false, 120 * time.Second},
		{"a client's RST in SYN_RECV changes nothing", lvs.Masq, []seg{q(S), q(R)}, conntrack.SynRecv, true, 60 * time.Second},
		{"a server's RST in SYN_RECV closes", lvs.Masq, []seg{q(S), r(R | A)}, conntrack.Close, false, 10 * time.Second},
		{"an RST closes", lvs.Tunnel, []seg{q(S), q(A), q(R)}, conntrack.Close, false, 10 * time.Second},
		{"a segment without flags closes", lvs.Masq, []seg{q(S), q(A), q(0)}, conntrack.Close, false, 10 * time.Second},
		{"a FIN in SYN_RECV", lvs.Route, []seg{q(S), q(F | A)}, conntrack.TimeWait, false, 120 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := conntrack.New(1, 1, func(*conntrack.Conn) {})
			c := conn(addr("198.51.100.7"), 1000, tt.method)
			if tt.method != lvs.Masq {
				c.Flags |= conntrack.NoOutput
			}
			slot := table.Lock(c.Proto, c.Client, c.ClientPort)
			defer slot.Unlock()
			entered, err := slot.Insert(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range tt.segments {
				slot.Step(entered, s.dir, s.flags, 0)
			}
			if entered.State != tt.want || entered.Active() != tt.active || entered.Expires() != tt.timeout {
				t.Errorf("%v, active %v, %v; want %v, %v, %v", entered.State, entered.Active(), entered.Expires(), tt.want, tt.active, tt.timeout)
			}
		})
	}
}
