package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// ftpTalk is a control connection of FTP through a masquerading director.
type ftpTalk struct {
	*world
	client, vip, rip string // in brackets over IPv6
	seq, ack         uint32 // of the client's next segment
	serverSeq        uint32 // the server's own
}

func newFTPTalk(t *testing.T, v6 bool) *ftpTalk {
	s := service("rr", lvs.Masq, 1)
	s.Port, s.Servers[0].Port = 21, 21
	f := &ftpTalk{client: client, vip: vip, rip: rip(1), seq: 101, ack: 501, serverSeq: 501}
	if v6 {
		s.VIP, s.Servers[0].RIP = addr(vip6), addr(rip6(1))
		f.client, f.vip, f.rip = "[2001:db8:1::10]", "["+vip6+"]", "["+rip6(1)+"]"
	}
	f.world = newWorld(t, s)
	one(t, f.in(clientLink, packettest.Build(t, packettest.Spec{Src: f.client + ":40000", Dst: f.vip + ":21", Flags: packet.SYN, Seq: 100})))
	one(t, f.in(serverLink, packettest.Build(t, packettest.Spec{Src: f.rip + ":21", Dst: f.client + ":40000", Flags: packet.SYN | packet.ACK, Seq: 500, Ack: 101})))
	f.says("")
	return f
}

// says has the client send a line and returns what the server gets.
func (f *ftpTalk) says(line string) string {
	f.t.Helper()
	p := one(f.t, f.in(clientLink, packettest.Build(f.t, packettest.Spec{Src: f.client + ":40000", Dst: f.vip + ":21",
		Flags: packet.ACK | packet.PSH, Seq: f.seq, Ack: f.ack, Payload: []byte(line)})))
	f.seq += uint32(len(line))
	return string(p.Buf[p.L4+20 : p.End])
}

// answers has the server send a line and returns what the client gets.
func (f *ftpTalk) answers(line string) string {
	f.t.Helper()
	p := one(f.t, f.in(serverLink, packettest.Build(f.t, packettest.Spec{Src: f.rip + ":21", Dst: f.client + ":40000",
		Flags: packet.ACK | packet.PSH, Seq: f.serverSeq, Ack: f.seq, Payload: []byte(line)})))
	f.serverSeq += uint32(len(line))
	got := string(p.Buf[p.L4+20 : p.End])
	f.ack += uint32(len(got))
	return got
}

// calls sends a SYN and returns what leaves.
func (f *ftpTalk) calls(link int, from, to string) []*packet.Packet {
	return f.in(link, packettest.Build(f.t, packettest.Spec{Src: from, Dst: to, Flags: packet.SYN}))
}

// TestActiveFTPOfAMasqueradedServer: the server calls the port that the client
// named by PORT or EPRT, and the client sees the VIP call from port 20.
func TestActiveFTPOfAMasqueradedServer(t *testing.T) {
	for _, c := range []struct {
		name, command string
		v6            bool
	}{
		{"PORT", "PORT 198,51,100,10,195,80\r\n", false},
		{"EPRT over IPv4", "EPRT |1|198.51.100.10|50000|\r\n", false},
		{"EPRT over IPv6", "EPRT |2|2001:db8:1::10|50000|\r\n", true},
		{"in small letters", "port 198,51,100,10,195,80\r\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFTPTalk(t, c.v6)
			if got := f.says(c.command); got != c.command {
				t.Errorf("the server reads %q", got)
			}
			f.answers("200 fine\r\n")
			call := one(t, f.calls(serverLink, f.rip+":20", f.client+":50000"))
			if packet.Endpoint(call.Flow.Src, call.Flow.SrcPort) != f.vip+":20" || call.Link != clientLink {
				t.Fatalf("the client is called as %v", call.Flow)
			}
			back := one(t, f.in(clientLink, packettest.Build(t, packettest.Spec{Src: f.client + ":50000", Dst: f.vip + ":20", Flags: packet.SYN | packet.ACK})))
			if packet.Endpoint(back.Flow.Dst, back.Flow.DstPort) != f.rip+":20" {
				t.Errorf("its answer goes %v", back.Flow)
			}
		})
	}
}

// TestActiveFTPOpensNothingForOthers: a client that names another host's address
// does not have the director opened for it.
func TestActiveFTPOpensNothingForOthers(t *testing.T) {
	for _, command := range []string{"PORT 198,51,100,11,195,80\r\n", "EPRT |1|198.51.100.11|50000|\r\n", "PORT 198,51,100,10,195\r\n", "EPRT |1|198.51.100.10|70000|\r\n"} {
		f := newFTPTalk(t, false)
		f.says(command)
		for _, to := range []string{"198.51.100.11:50000", client + ":50000"} {
			if out := f.calls(serverLink, f.rip+":20", to); len(out) != 0 {
				t.Errorf("after %q the server's call left as %v", command, summaries(out))
			}
		}
	}
}

// TestExtendedPassiveFTPOfAMasqueradedServer: the port in the answer to EPSV is
// reached at the VIP, by that client alone; the answer stays as it is.
func TestExtendedPassiveFTPOfAMasqueradedServer(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		f := newFTPTalk(t, v6)
		f.says("EPSV\r\n")
		const line = "229 Entering Extended Passive Mode (|||50000|)\r\n"
		if got := f.answers(line); got != line {
			t.Errorf("the client reads %q", got)
		}
		stranger := "198.51.100.11"
		if v6 {
			stranger = "[2001:db8:1::11]"
		}
		for _, p := range f.calls(clientLink, stranger+":40001", f.vip+":50000") {
			if p.Link == serverLink {
				t.Errorf("another client reached the server as %v", p.Flow)
			}
		}
		call := one(t, f.calls(clientLink, f.client+":40001", f.vip+":50000"))
		if packet.Endpoint(call.Flow.Dst, call.Flow.DstPort) != f.rip+":50000" {
			t.Errorf("the data connection goes %v", call.Flow)
		}
	}
}

// TestAnswersThatNobodyAskedForOpenNothing: a server's line that only looks like
// an answer, without the command before it.
func TestAnswersThatNobodyAskedForOpenNothing(t *testing.T) {
	f := newFTPTalk(t, false)
	f.says("RETR 229\r\n")
	f.answers("229 Entering Extended Passive Mode (|||50000|)\r\n")
	for _, p := range f.calls(clientLink, client+":40001", vip+":50000") {
		if p.Link == serverLink {
			t.Errorf("the server was reached as %v", p.Flow)
		}
	}
}

// TestSACKBlocksOfAnFTPClientAreMoved: when an answer has grown or shrunk, what
// the client acknowledges selectively is told to the server in its own numbers, at
// an even or an odd place of the header.
func TestSACKBlocksOfAnFTPClientAreMoved(t *testing.T) {
	for _, pad := range []int{0, 1, 2, 3} {
		f := newFTPTalk(t, false)
		f.says("PASV\r\n")
		said := fmt.Sprintf("227 Entering Passive Mode (%s,195,80).\r\n", strings.ReplaceAll(f.rip, ".", ","))
		got := f.answers(said)
		grown := uint32(len(got) - len(said))
		if !strings.Contains(got, strings.ReplaceAll(vip, ".", ",")) || grown == 0 {
			t.Fatalf("the client reads %q", got)
		}
		end := f.ack // behind the answer, as the client counts
		options := make([]byte, 0, 20)
		for range pad {
			options = append(options, 1)
		}
		options = append(options, 5, 18)
		for _, n := range []uint32{end + 10, end + 30, end + 50, end + 70} {
			options = binary.BigEndian.AppendUint32(options, n)
		}
		for len(options)%4 != 0 {
			options = append(options, 0)
		}
		p := packettest.Build(t, packettest.Spec{Src: f.client + ":40000", Dst: f.vip + ":21", Flags: packet.ACK, Seq: f.seq, Ack: end, Payload: options})
		b := p.Bytes()
		b[20+12] += byte(len(options) / 4 << 4)
		binary.BigEndian.PutUint16(b[20+16:], packettest.TransportChecksum(b))
		out := one(t, f.in(clientLink, p))
		tcp := out.Buf[out.L4:]
		if n := binary.BigEndian.Uint32(tcp[8:]); n != end-grown {
			t.Errorf("acknowledged %d, want %d", n, end-grown)
		}
		for i, n := range []uint32{end + 10, end + 30, end + 50, end + 70} {
			if edge := binary.BigEndian.Uint32(tcp[20+pad+2+4*i:]); edge != n-grown {
				t.Errorf("%d bytes of padding: edge %d is %d, want %d", pad, i, edge, n-grown)
			}
		}
	}
}
