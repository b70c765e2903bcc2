package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pktdirector/capture"
	"pktdirector/packet"
	"pktdirector/testbed"
)

// TestReplayRoundTrip: a lab's run is captured whole on its director. Replayed with
// the same configuration, the capture leads to the same decisions, the same counts and
// states, and the same packets, byte by byte but for what is drawn (identifications of
// outer headers) and checksums that offloads left open.
func TestReplayRoundTrip(t *testing.T) {
	for _, test := range []struct {
		name, lab string
		config    func(string) string
	}{
		{"NAT", "nat", nil},
		{"NAT, one arm", "nat-onearm", nil},
		{"direct routing", "dr", nil},
		{"IPIP", "tun", nil},
		{"NAT, wrr", "nat", func(s string) string { return strings.ReplaceAll(s, "scheduler: wlc", "scheduler: wrr") }},
		{"NAT, persistence", "nat", func(s string) string {
			return strings.ReplaceAll(s, "scheduler: wlc", "scheduler: rr\n    persistence_timeout: 600")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := film(t, test.lab, test.config, false, 66_000)
			for range 7 {
				if _, err := l.ask(netip.AddrPort{}, 0); err != nil {
					t.Fatal(err)
				}
			}
			upload := 60_000 // as super-frames, which offloads make
			if test.lab == "tun" {
				upload = 900
			}
			if _, err := l.ask(netip.AddrPort{}, upload); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Output(t.Context(), "client", "lab", "client", "echo", l.Topology.Target(l.Topology.Echo), "-n", "6"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond) // the last acknowledgements
			table, code := exitCode(t, l.Lab, "director", "ipvsadm", "-Ln")
			if code != 0 {
				t.Fatal(table)
			}
			l.stop()
			yaml := l.Topology.DirectorYAML(testbed.AFPacket)
			if test.config != nil {
				yaml = test.config(yaml)
			}
			dir := t.TempDir()
			file, left := filepath.Join(dir, "director.yaml"), filepath.Join(dir, "left.pcapng")
			if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			exit, out, said := replayed(append([]string{"-c", file, "-w", left, "--json"}, l.files...)...)
			if exit != 0 {
				t.Fatalf("exit code %d: %s\n%s", exit, said, out)
			}
			var r struct{ Played played }
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			const connections = 8
			if p := r.Played; p.Compared != p.Connections || p.Same != p.Connections || p.Connections < connections+1 {
				t.Errorf("%d connections, of %d the server is known, %d got the same one", p.Connections, p.Compared, p.Same)
			}
			// How large the tables are is up to either.
			size := regexp.MustCompile(`size=\d+`)
			if got, want := size.ReplaceAllString(r.Played.Table, ""), size.ReplaceAllString(table, ""); got != want {
				t.Errorf("the table in the end:\n%s\nthe director's was:\n%s", got, want)
			}
			l.compareFrames(left)
		})
	}
}

// compareFrames holds what replay wrote against what the director sent.
func (l *filmed) compareFrames(left string) {
	l.t.Helper()
	director := l.Topology.With(testbed.Director)[0]
	for i, nic := range director.NICs {
		// Two workers may change the order of two connections, not of one.
		sent, written := map[string][][]byte{}, map[string][][]byte{}
		frames := 0
		l.eachFrame(l.files[i], func(rec *capture.Record) {
			if rec.SrcMAC.String() == nic.MAC.String() {
				key := conversationOf(rec)
				sent[key] = append(sent[key], l.masked(rec))
				frames++
			}
		})
		l.eachFrame(left, func(rec *capture.Record) {
			if rec.Interface.Name == nic.Segment {
				key := conversationOf(rec)
				written[key] = append(written[key], l.masked(rec))
				frames--
			}
		})
		if len(sent) == 0 || len(sent) != len(written) || frames != 0 {
			l.t.Errorf("%s: the director sent packets of %d flows, replay of %d, and %d less", nic.Segment, len(sent), len(written), frames)
		}
		for flow, list := range sent {
			for k := range list[:min(len(list), len(written[flow]))] {
				if !bytes.Equal(list[k], written[flow][k]) {
					l.t.Fatalf("%s: %s: packet %d that left:\n%x, the director sent\n%x", nic.Segment, flow, k+1, written[flow][k], list[k])
				}
			}
		}
	}
}

// eachFrame hands every IPv4 packet of TCP, UDP or a tunnel in a file to take.
func (l *filmed) eachFrame(file string, take func(*capture.Record)) {
	l.t.Helper()
	r, err := capture.Open([]string{file}, capture.Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	defer r.Close()
	var rec capture.Record
	for {
		if err := r.Next(&rec); err == io.EOF {
			return
		} else if err != nil {
			l.t.Fatal(err)
		}
		if p := rec.Payload(); rec.EtherType == packet.EtherIPv4 && len(p) > 20 && packet.Proto(p[9]) != packet.ICMP && p[16] < 224 {
			take(&rec)
		}
	}
}

// conversationOf names the conversation and direction of a packet, or of what is in its tunnel.
func conversationOf(rec *capture.Record) string {
	b := rec.Payload()
	if packet.Proto(b[9]) == packet.IPIP {
		b = b[20:]
	}
	h := int(b[0]&15) * 4
	return fmt.Sprintf("%x %x %x", b[9], b[12:20], b[h:h+4])
}

// masked is a packet with the MAC of the real server that it goes to, without what
// offloads finish later and what is drawn.
func (l *filmed) masked(rec *capture.Record) []byte {
	ip := append([]byte{}, rec.Payload()...)
	b := ip
	if p := packet.Proto(b[9]); p == packet.IPIP {
		b[4], b[5], b[10], b[11] = 0, 0, 0, 0
		b = b[20:]
	}
	h := int(b[0]&15) * 4
	switch {
	case packet.Proto(b[9]) == packet.TCP && len(b) >= h+18:
		b[h+16], b[h+17] = 0, 0
	case packet.Proto(b[9]) == packet.UDP && len(b) >= h+8:
		b[h+6], b[h+7] = 0, 0
	}
	for _, host := range l.Topology.With(testbed.RealServer) {
		if rec.DstMAC.String() == host.NICs[0].MAC.String() {
			return append([]byte(host.Name+" "), ip...)
		}
	}
	return ip
}
