package main

import (
	"encoding/json"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/packet"
)

func TestExplainTellsAStory(t *testing.T) {
	_, shown, socket := newAPI(t)
	explain := func(args ...string) (string, int) {
		out, _, err := command(t.Context(), append([]string{"explain", "--control", socket}, args...)...)
		return out, exitOf(err)
	}
	// newAPI's packets: a connection whose first packet found no route, and one for no
	// service.
	out, code := explain("198.51.100.7:1000", "192.0.2.10:80")
	for _, want := range []string{
		"TCP 198.51.100.7:1000 -> 192.0.2.10:80\n", " decision 1: for the service tcp-192.0.2.10-80, found by address and port, the server 10.2.0.", " was chosen\n",
		"      rule: ", "      * 10.2.0.", "weight 1, ActiveConn 0, InActConn 0", "began: SYN_RECV, by a request\n",
		"dropped: TCP 198.51.100.7:1000 -> 192.0.2.10:80 [S] 40 bytes, server 10.2.0.", "no_route: ", "What to do: ", " now: SYN_RECV with the server 10.2.0.",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s", code, want, out)
		}
	}
	if out, code := explain("198.51.100.7:1000", "192.0.2.10:81"); code != 0 || !strings.Contains(out, "no_service") {
		t.Errorf("a refused packet: exit code %d\n%s", code, out)
	}
	if out, code := explain("198.51.100.9:1000", "192.0.2.10:80"); code != exitFailed || !strings.Contains(out, "nothing is known: no such connection is there, and the last 8192 decisions and state changes and 2048 drops tell of none") {
		t.Errorf("one that never was: exit code %d\n%s", code, out)
	}
	before := shown.director.Table()
	out, code = explain("--would", "198.51.100.7:1001", "192.0.2.10:80")
	if code != exitFailed || !strings.Contains(out, "the client's template, for the server 10.2.0.") || !strings.Contains(out, ", decides\n") || !strings.Contains(out, "verdict no_route") {
		t.Errorf("what would be: exit code %d\n%s", code, out)
	}
	out, code = explain("--would", "--json", "198.51.100.8:1001", "192.0.2.10:80")
	var s control.Story
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitFailed || s.Outlook == nil || s.Outlook.Verdict != "no_route" || s.Outlook.Decision == nil || len(s.Outlook.Decision.Candidates) != 2 || len(s.Steps) < 4 {
		t.Errorf("%v, exit code %d\n%s", err, code, out)
	}
	if after := shown.director.Table(); after != before || shown.director.Count(dataplane.NoRoute) != 1 {
		t.Errorf("being asked changed %+v to %+v", before, after)
	}
	for line, want := range map[string]int{
		"198.51.100.7 192.0.2.10:80": exitUsage, "2001:db8::7:1 [2001:db8::10]:80": exitUsage, "[2001:db8::7]:1 192.0.2.10:80": exitUsage, "--protocol icmp 198.51.100.7:1 192.0.2.10:80": exitUsage,
		"198.51.100.7:1": exitUsage, "--protocol udp [2001:db8::7]:1 [2001:db8::10]:80": exitFailed, "--would --protocol sctp [2001:db8::7]:1 [2001:db8::10]:80": exitFailed,
	} {
		if out, code := explain(strings.Fields(line)...); code != want {
			t.Errorf("%s: exit code %d, want %d\n%s", line, code, want, out)
		}
	}
}

// TestFirstPackets are what the engine takes for ones, of each protocol and IP version.
func TestFirstPackets(t *testing.T) {
	for _, ends := range [][2]string{{"198.51.100.7", "192.0.2.10"}, {"2001:db8::7", "2001:db8::10"}} {
		for _, proto := range []packet.Proto{packet.TCP, packet.UDP, packet.SCTP} {
			f := packet.Flow{Proto: proto, Src: packet.MustParseAddr(ends[0]), SrcPort: 40000, Dst: packet.MustParseAddr(ends[1]), DstPort: 80}
			p := firstPacket(f)
			if e := packet.Parse(p); e != packet.ParseOK || p.Flow != f || p.ShortTransport() || proto == packet.TCP && p.TCPFlags != packet.SYN || proto == packet.SCTP && p.Chunk != 1 {
				t.Errorf("%v: %v, %+v", f, e, p)
			}
		}
	}
}
