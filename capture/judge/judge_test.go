package judge_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pktdirector/capture"
	"pktdirector/capture/judge"
)

// read judges files.
func read(t testing.TB, files ...string) *judge.Report {
	t.Helper()
	r, err := capture.Open(files, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j := judge.New(judge.Options{Files: files})
	var rec capture.Record
	for {
		if err := r.Next(&rec); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		j.Add(&rec)
	}
	return j.Report()
}

// truth is what the clients of a recorded capture saw, and what its director said.
type truth struct {
	Name, Title, Fault string
	Files              []string
	Connections        []struct{ Client, Server, Error string }
	Save               string `json:"ipvsadm_save"`
	List               string `json:"ipvsadm_list"`
	Conns              string `json:"ipvsadm_conns"`
}

// codeOf is what each recorded fault is to be called.
func codeOf() map[string]judge.Code {
	return map[string]judge.Code{"fault-dr-arp": judge.ARPConflict, "fault-nat-bypass": judge.ReplyBypass, "fault-server-down": judge.ServerReset}
}

func TestCapturesOfAKernelDirector(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want truth
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		sets := [][]string{want.Files}
		if both, _ := filepath.Glob("testdata/" + want.Name + "-both.pcapng"); len(both) > 0 {
			sets = append(sets, []string{filepath.Base(both[0])})
		}
		for _, set := range sets {
			t.Run(strings.Join(set, " "), func(t *testing.T) {
				var paths []string
				for _, f := range set {
					paths = append(paths, filepath.Join("testdata", f))
				}
				compare(t, &want, read(t, paths...))
			})
		}
	}
}

func compare(t *testing.T, want *truth, got *judge.Report) {
	service := regexp.MustCompile(`-A -t (\S+)`).FindStringSubmatch(want.Save)
	vip := netip.MustParseAddrPort(service[1]).Addr().String()
	method := regexp.MustCompile(` -([gmi]) `).FindStringSubmatch(want.Save)
	mode := map[string]string{"g": "dr", "m": "nat", "i": "tun"}[method[1]]
	if got.Mode != mode || got.VIP != vip {
		t.Errorf("mode %s, VIP %s; it was %s, %s", got.Mode, got.VIP, mode, vip)
	}
	servers := map[string]string{}
	for _, m := range regexp.MustCompile(`-r (\S+)`).FindAllStringSubmatch(want.Save, -1) {
		a := netip.MustParseAddrPort(m[1]).Addr().String()
		servers["s"+a[len(a)-1:]] = m[1]
	}
	dest := map[string]string{}
	for _, line := range strings.Split(want.Conns, "\n") {
		if f := strings.Fields(line); len(f) == 6 && f[0] == "TCP" {
			dest[f[3]] = f[5]
		}
	}
	byClient := map[string]string{}
	for _, c := range got.Connections {
		byClient[c.Client] = c.Server
	}
	for i, c := range want.Connections {
		server := servers[c.Server]
		if server == "" {
			server = dest[c.Client]
		}
		if len(got.Connections) == 0 && len(dest) == 0 {
			continue // none of them passed the director
		}
		if byClient[c.Client] != server {
			t.Errorf("client %s got %q, %q is right", c.Client, byClient[c.Client], server)
		}
		if i < len(got.Connections) && got.Connections[i].Client != c.Client {
			t.Errorf("connection %d is of %s, %s is right", i, got.Connections[i].Client, c.Client)
		}
	}
	if len(got.Connections) > len(want.Connections) {
		t.Errorf("%d connections, there were %d", len(got.Connections), len(want.Connections))
	}
	code := codeOf()[want.Name]
	switch {
	case want.Fault == "":
		for _, f := range got.Findings {
			t.Errorf("a finding in a healthy capture: %s: %s %v", f.Code, f.Text, f.Packets)
		}
	case len(got.Findings) == 0 || got.Findings[0].Code != code:
		t.Errorf("findings %v, %s is right", got.Findings, code)
	}
	// All connections were recorded from a cold start: the scheduler in use is among
	// those that explain the picks.
	scheduler := regexp.MustCompile(` -s (\S+)`).FindStringSubmatch(want.Save)[1]
	for _, s := range got.Services {
		if !slices.Contains(s.Explained, scheduler) && !(scheduler == "wrr" && slices.Contains(s.Explained, "rr")) {
			t.Errorf("picks are explained by %v, it was %s", s.Explained, scheduler)
		}
	}
	for _, f := range got.Findings {
		t.Logf("%s: %s %v\n  next: %s", f.Code, f.Text, f.Packets, f.Next)
	}
	for _, n := range got.Notes {
		t.Log(n)
	}
}

func TestOneSideOfACapture(t *testing.T) {
	for _, test := range []struct {
		file, mode, vip string
		code            judge.Code
	}{
		{"nat-wlc-client-side.pcap", "nat", "10.1.0.100", ""},
		{"nat-wlc-server-side.pcap", "nat", "", ""},
		{"tun-wrr-client-side.pcap", "tun", "10.1.0.100", ""},
		{"tun-wrr-server-side.pcap", "tun", "10.1.0.100", ""},
		{"fault-nat-bypass-client-side.pcap", "nat", "10.1.0.100", judge.ReplyBypass},
		{"fault-nat-bypass-server-side.pcap", "nat", "", judge.ReplyBypass},
		{"fault-server-down-client-side.pcap", "nat", "10.1.0.100", judge.ServerReset},
		{"fault-server-down-server-side.pcap", "nat", "", judge.ServerReset},
	} {
		t.Run(test.file, func(t *testing.T) {
			got := read(t, filepath.Join("testdata", test.file))
			if got.Mode != test.mode || got.VIP != test.vip {
				t.Errorf("mode %s, VIP %s; it was %s, %s", got.Mode, got.VIP, test.mode, test.vip)
			}
			var first judge.Code
			if len(got.Findings) > 0 {
				first = got.Findings[0].Code
			}
			if first != test.code || len(got.Findings) > 1 {
				t.Errorf("findings %v, %q is right", got.Findings, test.code)
			}
			t.Log(got.Findings, got.Notes, got.Services)
		})
	}
}

// TestCapturesOfLabs: testdata/lab has captures of labs, each folder one, made by
// cmd/pktdirector's TestReplayJudgesLabs.
func TestCapturesOfLabs(t *testing.T) {
	for _, test := range []struct {
		name, mode, vip string
		code            judge.Code // empty: it is healthy
	}{
		{"nat", "nat", "203.0.113.80", ""},
		{"nat-onearm", "nat", "192.0.2.80", ""},
		{"dr", "dr", "192.0.2.80", ""},
		{"tun", "tun", "203.0.113.80", ""},
		{"ports-reused", "nat", "203.0.113.80", ""},
		{"ports-reused-rr", "nat", "203.0.113.80", ""},
		{"arp-open", "dr", "192.0.2.80", judge.ARPConflict},
		{"wrong-gateway", "nat", "192.0.2.80", judge.ReplyBypass},
		{"vip-missing", "dr", "192.0.2.80", judge.VIPMissing},
		{"vip-missing-tun", "tun", "203.0.113.80", judge.VIPMissing},
		{"mtu-blackhole", "nat", "203.0.113.80", judge.MTUBlackHole},
		{"port-reuse", "nat", "203.0.113.80", judge.PortReuse},
		{"weight0", "nat", "203.0.113.80", judge.WeightZero},
	} {
		t.Run(test.name, func(t *testing.T) {
			files, err := filepath.Glob("testdata/lab/" + test.name + "/*.pcap")
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			got := read(t, files...)
			if got.Mode != test.mode || got.VIP != test.vip {
				t.Errorf("mode %s, VIP %s; it was %s, %s", got.Mode, got.VIP, test.mode, test.vip)
			}
			var codes []judge.Code
			for _, f := range got.Findings {
				codes = append(codes, f.Code)
			}
			if test.code == "" && len(codes) > 0 || test.code != "" && (len(codes) == 0 || codes[0] != test.code) {
				t.Errorf("findings %v, %q is right", codes, test.code)
			}
		})
	}
}
