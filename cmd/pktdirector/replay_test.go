package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pktdirector/capture"
)

const judged4tests = "../../capture/judge/testdata/"

// replayed runs "pktdirector replay" and returns its exit code, what it printed and
// what it said beside that.
func replayed(args ...string) (code int, out, said string) {
	var o, e bytes.Buffer
	root := newRootCommand()
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetArgs(append([]string{"replay"}, args...))
	err := root.Execute()
	if err == nil {
		return 0, o.String(), e.String()
	}
	if x, ok := err.(exitError); ok {
		return x.code, o.String(), e.String() + x.Error()
	}
	return exitUsage, o.String(), e.String() + err.Error()
}

func written(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func bytesOfFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// disorder changes the places of two packets of a pcap file that are behind each other.
func disorder(file []byte) []byte {
	next := func(at int) int { return at + 16 + int(binary.LittleEndian.Uint32(file[at+8:])) }
	at := 24
	for range 50 {
		at = next(at)
	}
	mid := next(at)
	return slices.Concat(file[:at], file[mid:next(mid)], file[at:mid], file[next(mid):])
}

// TestReplayExitCodes: what each kind of capture and of mistake ends with, and what is
// said.
func TestReplayExitCodes(t *testing.T) {
	healthy, broken := judged4tests+"nat-wlc-both.pcapng", judged4tests+"fault-server-down-client-side.pcap"
	whole := bytesOfFile(t, judged4tests+"nat-wlc-client-side.pcap")
	cut := written(t, "cut.pcap", whole[:len(whole)-9])
	damaged := append([]byte{}, whole...)
	copy(damaged[24+8:], []byte{0, 0, 0, 0x7f}) // the first record's length
	damaged = append(append([]byte{}, whole...), damaged[24:24+16]...)
	for _, test := range []struct {
		name, printed, said string
		code                int
		args                []string
	}{
		{"healthy", "nothing is wrong", "", 0, []string{healthy}},
		{"broken", "server-down-reset: ", "", exitFailed, []string{broken}},
		{"a file that ends in a record is judged, and said to", "truncated file: it ends in the middle of a record", "", 0, []string{cut}},
		{"a damaged file is judged as far as it goes", "mode nat, VIP 10.1.0.100: 31 connections", "packet 339: a captured length of", exitFailed, []string{written(t, "damaged.pcap", damaged)}},
		{"packets not in order are a note", "[not-in-order]", "", 0, []string{written(t, "disorder.pcap", disorder(whole))}},
		{"no such file", "", "no-such-file.pcap", exitFailed, []string{"no-such-file.pcap"}},
		{"no capture", "", "empty", exitFailed, []string{written(t, "empty.pcap", nil)}},
		{"twice the same file", "", "named twice", exitFailed, []string{healthy, healthy}},
		{"a configuration that is wrong", "", "no-such.yaml", exitFailed, []string{healthy, "-c", "no-such.yaml"}},
		{"-w alone", "", "give it by -c", exitUsage, []string{healthy, "-w", "left.pcapng"}},
		{"--anonymise alone", "", "belongs to --to-scenario", exitUsage, []string{healthy, "--anonymise"}},
		{"standard input cannot be read twice", "", "save it in a file first", exitUsage, []string{"-", "--to-scenario", "case.json"}},
		{"no connections", "", "write 1 or more", exitUsage, []string{healthy, "--connections", "0"}},
		{"a scheduler that explains the picks", "picks as by wrr, wlc", "", 0, []string{healthy, "--scheduler", "wlc"}},
		{"a scheduler that does not", "scheduler-not-explained: ", "", exitFailed, []string{healthy, "--scheduler", "rr"}},
		{"more connections than are kept", "connection-overflow: ", "", exitFailed, []string{healthy, "--connections", "5"}},
	} {
		code, out, said := replayed(test.args...)
		if code != test.code || !strings.Contains(out, test.printed) || !strings.Contains(said, test.said) {
			t.Errorf("%s: exit code %d, %d is right; it should print %q and say %q:\n%s\n%s", test.name, code, test.code, test.printed, test.said, out, said)
		}
	}
}

// TestReplayJSON: the keys that programs rely on, with their types.
func TestReplayJSON(t *testing.T) {
	type report struct {
		Mode        string
		VIP         string
		Connections []struct{ Client, Server string }
		Findings    []struct {
			Code, Text, Next string
			Packets          []any
		}
	}
	for _, test := range []struct {
		files       []string
		connections int
		codes       []string
	}{
		{[]string{"nat-wlc-both.pcapng"}, 31, nil},
		{[]string{"fault-nat-bypass-client-side.pcap", "fault-nat-bypass-server-side.pcap"}, 9, []string{"nat-reply-bypass"}},
		{[]string{"fault-dr-arp-segment.pcap"}, 0, []string{"arp-conflict"}},
	} {
		args := []string{"--json"}
		for _, f := range test.files {
			args = append(args, judged4tests+f)
		}
		code, out, _ := replayed(args...)
		var top map[string]json.RawMessage
		var r report
		if err := errors.Join(json.Unmarshal([]byte(out), &top), json.Unmarshal([]byte(out), &r)); err != nil {
			t.Fatalf("%v: %v\n%s", test.files, err, out)
		}
		for _, key := range []string{"mode", "vip", "connections", "findings"} {
			if top[key] == nil || string(top[key]) == "null" {
				t.Errorf("%v: no %q", test.files, key)
			}
		}
		var codes []string
		for _, f := range r.Findings {
			codes = append(codes, f.Code)
			if f.Text == "" || f.Next == "" || len(f.Packets) == 0 {
				t.Errorf("%v: %+v", test.files, f)
			}
			for _, p := range f.Packets {
				_, number := p.(float64)
				name, _ := p.(string)
				if number != (len(test.files) == 1) || !number && !regexp.MustCompile(`^fault-.*\.pcap:\d+$`).MatchString(name) {
					t.Errorf("%v: packet %v: a number, or with several files FILE:NUMBER", test.files, p)
				}
			}
		}
		if r.Mode == "" || r.VIP != "10.1.0.100" || len(r.Connections) != test.connections || !slices.Equal(codes, test.codes) || (code == 0) != (len(codes) == 0) {
			t.Errorf("%v: exit code %d, %+v", test.files, code, r)
		}
		for _, c := range r.Connections {
			if !strings.HasPrefix(c.Client, "198.51.100.") || !strings.HasPrefix(c.Server, "10.2.0.1") {
				t.Errorf("%v: %+v", test.files, c)
			}
		}
	}
}

const recordedDirector = `links:
  - {name: f0, addresses: [10.1.0.2/24]}
  - {name: b0, addresses: [10.2.0.254/24]}
services:
  - protocol: tcp
    vip: 10.1.0.100
    port: 80
    scheduler: wlc
    method: nat
    servers:
      - {address: 10.2.0.11, port: 8080, weight: 3}
      - {address: 10.2.0.12, port: 8080, weight: 2}
      - {address: 10.2.0.13, port: 8080, weight: 1}
`

// TestReplayThroughAConfiguration: the picks are those of the capture, tables and
// verdicts are printed, and what would have left is written with its comments; the
// clients' side alone is enough for the same decisions.
func TestReplayThroughAConfiguration(t *testing.T) {
	config := written(t, "director.yaml", []byte(recordedDirector))
	left := filepath.Join(t.TempDir(), "left.pcapng")
	code, out, said := replayed(judged4tests+"nat-wlc-both.pcapng", "-c", config, "-w", left, "--explain")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	for _, want := range []string{
		"336 packets played, 344 left out, 31 new connections; 31 of 31 got the server that the capture shows",
		"costs the same, but stands later in the list",
		"  -> 10.2.0.13:8080               Masq    1      0          6         \n",
		"TCP  10.1.0.100:80                      31      325      136   217669     7603\n",
		"       136  replied            reply of a real server forwarded to the client\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	r, err := capture.Open([]string{left}, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	names, decided, n := map[string]int{}, 0, 0
	var rec capture.Record
	for ; ; n++ {
		if err := r.Next(&rec); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names[rec.Interface.Name]++
		if len(rec.Comments) == 0 || !strings.HasPrefix(rec.Comments[0], "from packet nat-wlc-both.pcapng:") || rec.Direction != capture.Outgoing {
			t.Fatalf("packet %d: %q, %v", n+1, rec.Comments, rec.Direction)
		}
		if len(rec.Comments) > 1 && strings.HasPrefix(rec.Comments[1], "decision: TCP 10.1.0.100:80 for TCP 198.51.100.") {
			decided++
		}
	}
	if n != 336 || decided != 31 || names["f0"] != 136 || names["b0"] != 200 {
		t.Errorf("%d packets are written, by interface %v, %d with a decision", n, names, decided)
	}

	_, alone, _ := replayed(judged4tests+"nat-wlc-client-side.pcap", "-c", config, "--json")
	_, both, _ := replayed(judged4tests+"nat-wlc-both.pcapng", "-c", config, "--json")
	type picks struct {
		Played struct {
			Picks []struct{ Client, Server string }
		}
	}
	var a, b picks
	if err := errors.Join(json.Unmarshal([]byte(alone), &a), json.Unmarshal([]byte(both), &b)); err != nil {
		t.Fatal(err)
	}
	if len(a.Played.Picks) != 31 || !slices.Equal(a.Played.Picks, b.Played.Picks) {
		t.Errorf("the clients' side alone leads to %v, both to %v", a.Played.Picks, b.Played.Picks)
	}

	other := written(t, "other.yaml", []byte(strings.ReplaceAll(recordedDirector, "10.1.0.100", "10.1.0.101")))
	if code, out, _ := replayed(judged4tests+"nat-wlc-both.pcapng", "-c", other); code != 0 || !strings.Contains(out, "note: no packet is for a virtual service of this configuration") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	rr := written(t, "rr.yaml", []byte(strings.ReplaceAll(recordedDirector, "wlc", "rr")))
	if code, out, _ := replayed(judged4tests+"nat-wlc-both.pcapng", "-c", rr); code != exitFailed || !strings.Contains(out, "  in the capture: 10.2.0.1") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestReplayToScenario: what is written passes "scenario check", with the capture's
// addresses and with others, of which those of one subnet stay in one.
func TestReplayToScenario(t *testing.T) {
	for _, test := range []struct {
		name  string
		files []string
		more  []string
	}{
		{"NAT", []string{"nat-wlc-both.pcapng"}, nil},
		{"NAT, anonymous", []string{"nat-wlc-both.pcapng"}, []string{"--anonymise"}},
		{"direct routing, anonymous", []string{"dr-rr-segment.pcap"}, []string{"--anonymise"}},
		{"tunnelling", []string{"tun-wrr-client-side.pcap", "tun-wrr-server-side.pcap"}, nil},
		{"the clients' side and a configuration, anonymous", []string{"nat-wlc-client-side.pcap"}, []string{"--anonymise", "-c", written(t, "director.yaml", []byte(recordedDirector))}},
		{"a fault", []string{"fault-server-down-client-side.pcap", "fault-server-down-server-side.pcap"}, []string{"--anonymise"}},
	} {
		file := filepath.Join(t.TempDir(), "case-1.json")
		args := append([]string{"--to-scenario", file}, test.more...)
		for _, f := range test.files {
			args = append(args, judged4tests+f)
		}
		if _, _, said := replayed(args...); !strings.Contains(said, "checked by: pktdirector scenario check "+file) {
			t.Errorf("%s: %s", test.name, said)
			continue
		}
		if code, out := scenario("check", file); code != 0 || !strings.Contains(out, "1/1") {
			t.Errorf("%s: scenario check: exit code %d, %s", test.name, code, out)
		}
		text := string(bytesOfFile(t, file))
		clients := map[string]bool{}
		for _, m := range regexp.MustCompile(`"from":"client"[^}]*"src":"(\d+\.\d+\.\d+)\.\d+:`).FindAllStringSubmatch(text, -1) {
			clients[m[1]] = true
		}
		if len(clients) != 1 {
			t.Errorf("%s: clients of one subnet are of %v", test.name, clients)
		}
		anonymous := slices.Contains(test.more, "--anonymise")
		if got := strings.Contains(text, "198.51.100.") || strings.Contains(text, "10.1.0."); got == anonymous {
			t.Errorf("%s: the capture's addresses are in the scenario: %t", test.name, got)
		}
	}
}

// Progress is for terminals alone.
func TestNoProgressInFiles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if newProgress(f) != nil {
		t.Error("progress is written into a file")
	}
}
