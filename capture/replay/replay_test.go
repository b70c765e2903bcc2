package replay_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"path/filepath"
	"testing"

	"pktdirector/capture"
	"pktdirector/capture/judge"
	"pktdirector/capture/replay"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/modes/dr"
	"pktdirector/modes/fullnat"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
	"pktdirector/packet"
	"pktdirector/sim"
)

const captures = "../judge/testdata/"

// each hands every packet of files to take.
func each(t testing.TB, files []string, take func(*capture.Record)) {
	t.Helper()
	r, err := capture.Open(files, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var rec capture.Record
	for {
		if err := r.Next(&rec); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		take(&rec)
	}
}

func judged(t testing.TB, files []string) *judge.Report {
	j := judge.New(judge.Options{Files: files})
	each(t, files, j.Add)
	return j.Report()
}

// masq is the recorded NAT service.
func masq(scheduler string, weights ...int) lvs.Ruleset {
	s := lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("10.1.0.100"), Port: 80}, Scheduler: scheduler}
	for i, w := range weights {
		rip := packet.AddrFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(11 + i)}))
		s.Servers = append(s.Servers, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: rip, Port: 8080}, Method: lvs.Masq, Weight: w})
	}
	return lvs.Ruleset{Services: []lvs.VirtualService{s}}
}

func director(t testing.TB, rules lvs.Ruleset) *dataplane.Director {
	d := dataplane.New(dataplane.Options{Seed: 1, Decisions: true, Forwarders: dataplane.Forwarders{
		lvs.Masq: nat.Masq{}, lvs.FullNAT: fullnat.Both{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(1)}})
	if err := d.Apply(rules); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTheEngineDoesWhatTheKernelDid: a capture of a kernel director, both sides, and
// its configuration. Every connection gets the server that it got, and what leaves is
// what the kernel sent, byte by byte but for checksums that offloads left open.
func TestTheEngineDoesWhatTheKernelDid(t *testing.T) {
	files := []string{captures + "nat-wlc-both.pcapng"}
	report := judged(t, files)
	rules := masq("wlc", 3, 2, 1)
	var want, got [][]byte
	picks, same := 0, 0
	e, err := replay.New(director(t, rules), rules, replay.Options{
		Links: []replay.Link{{Name: "f0"}, {Name: "b0"}}, Sent: report.DirectorSent, MAC: report.MAC, ServersSeen: report.ServersSeen(),
		Left: func(p *packet.Packet, frame []byte, _ int64) {
			got = append(got, masked(frame[14:]))
			if mac := packet.MAC(frame[:6]); p.Link == 1 && mac != (packet.MAC{2, 0, 0, 0, 0x0b, 0x10 + frame[33]%10}) {
				t.Errorf("a frame to %s goes to %s", netip.AddrFrom4([4]byte(frame[30:34])), mac)
			}
		},
		Decided: func(d *dataplane.Decision, rec *capture.Record) {
			picks++
			if d.Pick != nil && report.ServerOf(d.Flow, rec.Time) == d.Pick.Server.String() {
				same++
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	each(t, files, func(rec *capture.Record) {
		e.Add(rec)
		if rec.EtherType == packet.EtherIPv4 && report.DirectorSent(rec.SrcMAC) {
			want = append(want, masked(append([]byte{}, rec.Data[rec.Offset:]...)))
		}
	})
	if picks != 31 || same != picks {
		t.Errorf("%d of %d picks are the kernel's, 31 of 31 should be", same, picks)
	}
	if len(got) != len(want) {
		t.Fatalf("%d packets left, the kernel sent %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i][:min(len(got[i]), len(want[i]))], want[i]) {
			t.Fatalf("packet %d that left:\n%x, the kernel sent\n%x", i, got[i], want[i])
		}
	}
}

// masked is an IPv4 packet with TCP without the checksum that is left to the device.
func masked(b []byte) []byte {
	if at := int(b[0]&15) * 4; b[9] == 6 && len(b) >= at+18 {
		b[at+16], b[at+17] = 0, 0
	}
	return b
}

// TestClientSideAlone: without the servers' side, what the clients got stands for
// the servers' replies, and the states go on.
func TestClientSideAlone(t *testing.T) {
	files := []string{captures + "nat-wlc-client-side.pcap"}
	report := judged(t, files)
	rules := masq("wlc", 3, 2, 1)
	d := director(t, rules)
	e, err := replay.New(d, rules, replay.Options{Links: []replay.Link{{Name: "f0"}}, Sent: report.DirectorSent, ServersSeen: report.ServersSeen()})
	if err != nil {
		t.Fatal(err)
	}
	each(t, files, e.Add)
	counts := map[string]uint64{}
	for _, v := range d.Verdicts() {
		counts[v.Name] = v.Count
	}
	if counts["forwarded"] != 200 || counts["replied"] != 136 {
		t.Errorf("verdicts %v, 200 requests and 136 replies were captured", counts)
	}
	for _, s := range d.Status()[0].Destinations {
		if s.Active != 0 {
			t.Errorf("%s has %d active connections, all ended", s.Server, s.Active)
		}
	}
}

// TestScenariosFromCaptures: a scenario of each recorded capture with its servers'
// side plays as recorded, also with other addresses.
func TestScenariosFromCaptures(t *testing.T) {
	for _, files := range [][]string{
		{"nat-wlc-both.pcapng"}, {"nat-wlc-client-side.pcap", "nat-wlc-server-side.pcap"}, {"dr-rr-segment.pcap"},
		{"tun-wrr-client-side.pcap", "tun-wrr-server-side.pcap"}, {"nat-any-sll2-any.pcap"},
		{"fault-server-down-client-side.pcap", "fault-server-down-server-side.pcap"},
	} {
		for _, anonymous := range []bool{false, true} {
			var paths []string
			for _, f := range files {
				paths = append(paths, captures+f)
			}
			report := judged(t, paths)
			s, err := replay.NewScenario("case-1", "of a capture", report, nil)
			if err != nil {
				t.Fatal(err)
			}
			if anonymous {
				s.Anonymise = capture.NewAnonymiser([capture.AnonymiserKeyLen]byte{1}, capture.SpecialPrefixes()...).Addr
			}
			each(t, paths, s.Add)
			done, others, err := s.Finish()
			if err != nil {
				t.Fatalf("%v: %v", files, err)
			}
			text, err := done.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if anonymous && (bytes.Contains(text, []byte("198.51.100.")) || bytes.Contains(text, []byte("10.1.0.100"))) {
				t.Errorf("%v: an address is not anonymous", files)
			}
			again, err := sim.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if r := sim.Check(again, sim.Options{Explain: true}); !r.OK() || others > 0 {
				t.Errorf("%v: %d picks are others; %+v", files, others, r.First)
			}
			started := 0
			for _, e := range done.Events {
				if e.Op == "pkt" && e.From == "client" && e.Flags != nil && *e.Flags == "S" {
					started++
				}
			}
			if started != len(report.Connections) {
				t.Errorf("%v: %d connections, the capture has %d", filepath.Base(files[0]), started, len(report.Connections))
			}
		}
	}
}
