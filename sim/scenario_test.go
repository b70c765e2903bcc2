package sim_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pktdirector/sim"
)

// small is a scenario as a user writes it: nothing is recorded yet.
const small = `{"id": "mine-first", "title": "two servers", "events": [
  {"op": "ipvsadm", "args": "-A -t 192.0.2.10:80 -s rr"},
  {"op": "ipvsadm", "args": "-a -t 192.0.2.10:80 -r 10.2.0.1:80 -g"},
  {"op": "ipvsadm", "args": "-a -t 192.0.2.10:80 -r 10.2.0.2:80 -g"},
  {"op": "pkt", "from": "client", "proto": "tcp", "src": "198.51.100.1:1000", "dst": "192.0.2.10:80", "flags": "S"},
  {"op": "bulk", "proto": "tcp", "flags": "S", "results": [["198.51.100.2:1000", "192.0.2.10:80"], ["198.51.100.3:1000", "192.0.2.10:80"]]},
  {"op": "sleep", "seconds": 61},
  {"op": "pkt", "from": "client", "proto": "tcp", "src": "198.51.100.1:1000", "dst": "192.0.2.10:80", "flags": "A"}
]}`

func parse(t *testing.T, text string) *sim.Scenario {
	t.Helper()
	s, err := sim.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatIsNotRecordedIsNotCompared(t *testing.T) {
	check(t, parse(t, small), sim.Options{})
}

func TestRecordFillsInWhatHappens(t *testing.T) {
	filled, err := sim.Record(parse(t, small), sim.Options{}, true)
	if err != nil {
		t.Fatal(err)
	}
	check(t, filled, sim.Options{Explain: true})
	b, err := filled.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"t":0.001,`, `"rs":"RS2"`, `["198.51.100.2:1000","192.0.2.10:80","RS1"]`, `"state":"SYN_RECV","expires":60`,
		`[["TCP 192.0.2.10:80",[["10.2.0.2:80",1,0,0],["10.2.0.1:80",1,0,0]]]]`, // the half-open ones ended meanwhile
		`"flags":"R"`, `"conns":[]`,
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("the record lacks %s:\n%s", want, b)
		}
	}
	again := parse(t, string(b))
	if len(again.Events) != len(filled.Events) {
		t.Fatalf("%d events were written, %d read", len(filled.Events), len(again.Events))
	}
	check(t, again, sim.Options{})
	twice, err := again.Marshal()
	if err != nil || !bytes.Equal(b, twice) {
		t.Errorf("written twice it differs (%v):\n%s", err, twice)
	}
}

func TestRecordingsSurviveReadingAndWriting(t *testing.T) {
	for _, s := range recordings(t, "testdata/vectors/*.json") {
		b, err := s.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Sysctl) == 0 {
			s.Sysctl = nil // an empty one is not written
		}
		again := parse(t, string(b))
		compactSummaries(s)
		compactSummaries(again)
		if !reflect.DeepEqual(s, again) {
			t.Errorf("%s is another scenario once written and read", s.ID)
		}
	}
}

// compactSummaries takes the white space out of what stands in a scenario for
// people.
func compactSummaries(s *sim.Scenario) {
	compact := func(m *json.RawMessage) {
		var b bytes.Buffer
		if json.Compact(&b, *m) == nil {
			*m = b.Bytes()
		}
	}
	for _, e := range s.Events {
		compact(&e.InSummary)
		for i := range e.Out {
			compact(&e.Out[i].Summary)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a mistyped field":           {"{\"id\": \"x\",\n \"events\": [\n {\"op\": \"pkt\", \"form\": \"client\"}]}", `line 3: json: unknown field "form"`},
		"a bulk's packet of one":     {`{"events": [{"op": "bulk", "results": [["a"]]}]}`, "[source, destination, outcome]"},
		"a table row without number": {`{"events": [{"op": "note", "table": [["TCP a", [["b", 1]]]]}]}`, "4 elements are expected"},
		"a setting that is a list":   {`{"sysctl": {"sloppy_tcp": [1]}}`, "a setting is a number or a string"},
		"two scenarios in one file":  {"{\"id\": \"x\"}\n{\"id\": \"y\"}", "line 1: something follows the scenario"},
		"an empty file":              {"", "line 1: the file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := sim.Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to contain %s", err, test.want)
			}
		})
	}
}

func TestPlayRefuses(t *testing.T) {
	for name, test := range map[string]struct{ event, want string }{
		"an unknown op":         {`{"op": "dance"}`, `op "dance" is not known`},
		"an unknown protocol":   {`{"op": "pkt", "from": "client", "proto": "icmp", "src": "198.51.100.1:1", "dst": "192.0.2.10:1"}`, "write tcp, udp or sctp"},
		"an unknown flag":       {`{"op": "pkt", "from": "client", "proto": "tcp", "flags": "SX", "src": "198.51.100.1:1", "dst": "192.0.2.10:1"}`, "the letters are FSRPAUEC"},
		"an unknown side":       {`{"op": "pkt", "from": "moon", "proto": "udp", "src": "198.51.100.1:1", "dst": "192.0.2.10:1"}`, "write client or rs"},
		"mixed IP versions":     {`{"op": "pkt", "from": "client", "proto": "udp", "src": "198.51.100.1:1", "dst": "[2001:db8:f::10]:1"}`, "different IP versions"},
		"an address, no port":   {`{"op": "pkt", "from": "client", "proto": "udp", "src": "198.51.100.1", "dst": "192.0.2.10:1"}`, "src: "},
		"a frame of no hex":     {`{"op": "frame", "from": "client", "in": "zz"}`, "write an Ethernet frame in hex"},
		"a frame of one byte":   {`{"op": "frame", "from": "client", "in": "00"}`, "its header alone has 14"},
		"a frame from nowhere":  {`{"op": "frame", "in": "0200000001fe0200000001010800"}`, "write client or rs"},
		"a pause before now":    {`{"op": "sleep", "seconds": -5}`, "seconds -5: write 0 to 2678400"},
		"a pause of 1e300":      {`{"op": "sleep", "seconds": 1e300}`, "seconds 1e+300: write 0 to 2678400"},
		"a time before all":     {`{"op": "note", "t": -1}`, "t -1: write 0 to 2678400"},
		"a bulk's odd address":  {`{"op": "bulk", "proto": "udp", "results": [["198.51.100.1:1", "x"]]}`, "results[0]: dst: "},
		"no event":              {`null`, "null is no event"},
		"an unknown setting":    {`{"op": "sysctl", "name": "net.ipv4.vs.nonsense", "value": 1}`, `nonsense: the director has no setting of that name`},
		"a route to nowhere":    {`{"op": "route", "args": "203.0.113.0/24"}`, "leads nowhere"},
		"a route's odd word":    {`{"op": "route", "args": "203.0.113.0/24 metric 1"}`, `"metric" is not known`},
		"an address's zone":     {`{"op": "pkt", "from": "client", "proto": "udp", "src": "[fe80::1%x]:1", "dst": "[2001:db8:f::10]:1"}`, "without a zone"},
		"IPv4 within IPv6":      {`{"op": "pkt", "from": "client", "proto": "udp", "src": "[::ffff:192.0.2.1]:1", "dst": "[2001:db8:f::10]:1"}`, "as 192.0.2.1"},
		"a link of no director": {`{"op": "route", "args": "203.0.113.0/24 dev eth9"}`, "cli0, rs0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := sim.Check(parse(t, `{"id": "x", "events": [`+test.event+`]}`), sim.Options{})
			if r.OK() || r.Err == nil || !strings.Contains(r.Err.Error(), "event 0") || !strings.Contains(r.Err.Error(), test.want) {
				t.Errorf("got %v, want it to name event 0 and contain %s", r.Err, test.want)
			}
		})
	}
}

// TestNothingIsPlayedOfAWrongScenario looks at the first event's neighbour: the
// second one is refused before the first is played.
func TestNothingIsPlayedOfAWrongScenario(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no id":             {`{"events": [{"op": "note"}]}`, "id is missing"},
		"no event":          {`{"id": "x"}`, "events: there are none"},
		"an MTU below zero": {`{"id": "x", "mtu_rs": -1, "events": [{"op": "note"}]}`, "mtu_rs -1: write 68 to 65535"},
		"a mark of 0":       {`{"id": "x", "marks": [{"dport": 80}], "events": [{"op": "note"}]}`, "marks[0].mark: 0 is no mark"},
		"a later setting":   {`{"id": "x", "events": [{"op": "note"}, {"op": "sysctl", "name": "sloppy_tcp", "value": 7}]}`, "event 1 (sysctl sloppy_tcp=7)"},
		"the second event":  {`{"id": "x", "events": [{"op": "note"}, {"op": "sleep", "seconds": -1}]}`, "event 1 (sleep -1)"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := sim.NewPlayer(parse(t, test.text), sim.Options{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to contain %s", err, test.want)
			}
		})
	}
}

// TestTheNetwork sends packets that no service wants: the director's host routes
// them, or answers for the VIPs as a host without listeners does.
func TestTheNetwork(t *testing.T) {
	for name, test := range map[string]struct{ before, packet, want string }{
		"from a server to a client":      {"", `"from":"rs","proto":"tcp","flags":"A","src":"10.2.0.1:80","dst":"198.51.100.1:1000"`, "to client: tcp 10.2.0.1:80 > 198.51.100.1:1000 A"},
		"from a client to a server":      {"", `"from":"client","proto":"udp","src":"[2001:db8:77::1]:7","dst":"[2001:db8:2::b]:7"`, "to rs RS11: udp [2001:db8:77::1]:7 > [2001:db8:2::b]:7"},
		"TCP to a VIP without a service": {"", `"from":"client","proto":"tcp","flags":"S","src":"198.51.100.1:1000","dst":"192.0.2.10:80"`, "to client: tcp 192.0.2.10:80 > 198.51.100.1:1000 RA"},
		"along a route behind a server":  {`{"op":"route","args":"203.0.113.0/24 via 10.2.0.9"},`, `"from":"client","proto":"udp","src":"198.51.100.1:1","dst":"203.0.113.7:9"`, "to rs RS9: udp 198.51.100.1:1 > 203.0.113.7:9"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, `{"id":"x","events":[`+test.before+`{"op":"pkt",`+test.packet+`}]}`)
			p, err := sim.NewPlayer(s, sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got sim.Result
			for _, e := range s.Events {
				if got, err = p.Play(e); err != nil {
					t.Fatal(err)
				}
			}
			if len(got.Out) != 1 || got.Out[0].String() != test.want {
				t.Errorf("got %v, want %s", got.Out, test.want)
			}
		})
	}
}

// TestFramesAreComparedByteByByte lets only what a machine chooses afresh differ.
func TestFramesAreComparedByteByByte(t *testing.T) {
	const service = `{"op":"ipvsadm","args":"-A -t 192.0.2.10:80 -s rr"},{"op":"ipvsadm","args":"-a -t 192.0.2.10:80 -r 10.2.0.1:80 -i"},`
	// A SYN without don't-fragment to the service: the tunnel's IP id is the director's choice.
	const in = "0200000001fe0200000001010800450000280001000040068e8ac6336407c000020a03e80050000003e8000000005002faf018520000"
	s := parse(t, `{"id":"x","events":[`+service+`{"op":"frame","from":"client","in":"`+in+`"}]}`)
	filled, err := sim.Record(s, sim.Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	out := &filled.Events[2].Out
	if len(*out) != 1 {
		t.Fatalf("%d frames left, want 1", len(*out))
	}
	frame := (*out)[0].Frame
	change := func(at int, b string) { (*out)[0].Frame = frame[:at*2] + b + frame[at*2+2:] }
	for at, differs := range map[int]bool{14 + 4: false, 14 + 5: false, 14 + 10: false, 0: true, 14 + 1: true, 14 + 8: true, 14 + 20 + 4: true, 14 + 20 + 20: true} {
		change(at, "77")
		if r := sim.Check(filled, sim.Options{}); r.OK() == differs {
			t.Errorf("byte %d changed: check says %v", at, r.OK())
		}
	}
	if r := sim.Check(filled, sim.Options{Seed: 99}); r.Err != nil {
		t.Error(r.Err)
	}
}

func TestReportShowsBothSides(t *testing.T) {
	s := parse(t, strings.Replace(small, `"flags": "S"}`, `"flags": "S", "out": []}`, 1))
	r := sim.Check(s, sim.Options{})
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mine-first: two servers", "event 3: client sends tcp 198.51.100.1:1000 > 192.0.2.10:80 S", "out differs", "! silence  | to rs RS2: tcp"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(file, []byte("{\n]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Load(file); err == nil || !strings.Contains(err.Error(), file+": line 2") {
		t.Errorf("got %v, want the file and line 2", err)
	}
}
