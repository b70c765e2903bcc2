package control_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// running is a state in short: services by name, each with its scheduler and
// servers, like "tcp 80 rr | 1 w1, 2 w3". Settings are "drop_entry=3", timeouts
// "tcp=900", marks "marks=7,8".
func running(t testing.TB, lines ...string) control.Running {
	t.Helper()
	r := control.Running{Sysctl: map[string]string{"drop_entry": "0", "sloppy_tcp": "0"}, Timeouts: control.DefaultTimeouts()}
	for _, line := range lines {
		name, value, setting := strings.Cut(line, "=")
		switch {
		case setting && name == "marks":
			for _, m := range strings.Split(value, ",") {
				var n uint32
				if _, err := fmt.Sscan(m, &n); err != nil {
					t.Fatal(err)
				}
				r.Ruleset.Marks = append(r.Ruleset.Marks, lvs.MarkRule{Mark: n, Link: -1})
			}
			continue
		case setting && name == "tcp":
			var n int
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatal(err)
			}
			r.Timeouts.TCP = time.Duration(n) * time.Second
			continue
		case setting:
			r.Sysctl[name] = value
			continue
		}
		head, servers, _ := strings.Cut(line, "|")
		words := strings.Fields(head)
		proto := map[string]packet.Proto{"tcp": packet.TCP, "udp": packet.UDP}[words[0]]
		s := lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: proto, VIP: packet.MustParseAddr("192.0.2.80")}, Scheduler: words[2]}
		if _, err := fmt.Sscan(words[1], &s.Port); err != nil {
			t.Fatal(err)
		}
		for _, one := range words[3:] {
			if _, err := fmt.Sscanf(one, "p%d", &s.Persist); err != nil {
				t.Fatal(err)
			}
			s.Persist *= time.Second
		}
		for _, server := range strings.Split(servers, ",") {
			if strings.TrimSpace(server) == "" {
				continue
			}
			var host byte
			rs := lvs.RealServer{Method: lvs.Masq}
			if _, err := fmt.Sscanf(strings.TrimSpace(server), "%d w%d", &host, &rs.Weight); err != nil {
				t.Fatalf("%q: %v", server, err)
			}
			rs.ServerKey = lvs.ServerKey{RIP: packet.AddrFrom4([]byte{10, 0, 0, host}), Port: s.Port}
			s.Servers = append(s.Servers, rs)
		}
		r.Ruleset.Services = append(r.Ruleset.Services, s)
	}
	return r
}

// TestAReloadMergesThreeStates goes through what can have happened to the file and to
// the director since the file was loaded.
func TestAReloadMergesThreeStates(t *testing.T) {
	type states []string
	for _, c := range []struct {
		name               string
		loaded, file, now  states
		restored, kept     states // what the director does afterwards
		restoring, keeping string // the plans
	}{
		{name: "nothing changed", loaded: states{"tcp 80 rr | 1 w1"}, file: states{"tcp 80 rr | 1 w1"}, now: states{"tcp 80 rr | 1 w1"}},
		{
			name: "the file changes a weight and adds a server", loaded: states{"tcp 80 rr | 1 w1, 2 w1"}, now: states{"tcp 80 rr | 1 w1, 2 w1"},
			file:      states{"tcp 80 rr | 1 w9, 2 w1, 3 w1"},
			restoring: "~ server 10.0.0.1:80 of tcp 192.0.2.80:80: weight 1 -> 9\n+ server 10.0.0.3:80 of tcp 192.0.2.80:80: weight 1, method nat\n",
		},
		{
			name: "the file moves a service from TCP to UDP", loaded: states{"tcp 80 rr | 1 w1"}, now: states{"tcp 80 rr | 1 w1"}, file: states{"udp 80 rr | 1 w1"},
			restoring: "- service tcp 192.0.2.80:80\n+ service udp 192.0.2.80:80: scheduler rr\n+ server 10.0.0.1:80 of udp 192.0.2.80:80: weight 1, method nat\n",
		},
		{
			name: "the file changes scheduler and persistence", loaded: states{"tcp 80 rr | 1 w1"}, now: states{"tcp 80 rr | 1 w1"}, file: states{"tcp 80 wlc p300 | 1 w1"},
			restoring: "~ service tcp 192.0.2.80:80: scheduler rr -> wlc, persistence none -> 300\n",
		},
		{
			name: "a weight set to 0 by a check, and the same file", loaded: states{"tcp 80 rr | 1 w1, 2 w5"}, file: states{"tcp 80 rr | 1 w1, 2 w5"}, now: states{"tcp 80 rr | 1 w1, 2 w0"},
			kept:      states{"tcp 80 rr | 1 w1, 2 w0"},
			restoring: "! server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 5 -> 0 by hand: restored\n~ server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 0 -> 5\n",
			keeping:   "! server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 5 -> 0 by hand: kept\n",
		},
		{
			name: "a weight set to 0 by a check, and the file gives it another", loaded: states{"tcp 80 rr | 2 w5"}, file: states{"tcp 80 rr | 2 w7"}, now: states{"tcp 80 rr | 2 w0"},
			restoring: "! server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 5 -> 0 by hand: replaced\n~ server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 0 -> 7\n",
		},
		{
			name: "a server at weight 0 by a check is taken out of the file", loaded: states{"tcp 80 rr | 1 w1, 2 w5"}, file: states{"tcp 80 rr | 1 w1"}, now: states{"tcp 80 rr | 1 w1, 2 w0"},
			restoring: "! server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 5 -> 0 by hand: replaced\n- server 10.0.0.2:80 of tcp 192.0.2.80:80\n",
		},
		{
			name: "a service deleted by hand, and the same file", loaded: states{"tcp 80 rr | 1 w1", "udp 53 rr | 1 w1"}, file: states{"tcp 80 rr | 1 w1", "udp 53 rr | 1 w1"}, now: states{"tcp 80 rr | 1 w1"},
			kept:      states{"tcp 80 rr | 1 w1"},
			restoring: "! service udp 192.0.2.80:53, removed by hand: restored\n+ service udp 192.0.2.80:53: scheduler rr\n+ server 10.0.0.1:53 of udp 192.0.2.80:53: weight 1, method nat\n",
			keeping:   "! service udp 192.0.2.80:53, removed by hand: kept\n",
		},
		{
			name: "a service deleted by hand, and the file changes a server of it", loaded: states{"udp 53 rr | 1 w1, 2 w2"}, file: states{"udp 53 rr | 1 w3, 2 w2"}, now: nil,
			restoring: "! service udp 192.0.2.80:53, removed by hand: restored\n+ service udp 192.0.2.80:53: scheduler rr\n" +
				"+ server 10.0.0.1:53 of udp 192.0.2.80:53: weight 3, method nat\n+ server 10.0.0.2:53 of udp 192.0.2.80:53: weight 2, method nat\n",
		},
		{
			name: "a service deleted by hand and from the file", loaded: states{"udp 53 rr | 1 w1"}, file: nil, now: nil,
			restoring: "! service udp 192.0.2.80:53, removed by hand: adopted\n",
		},
		{
			name: "a server deleted by hand, and the same file", loaded: states{"tcp 80 rr | 1 w1, 2 w1"}, file: states{"tcp 80 rr | 1 w1, 2 w1"}, now: states{"tcp 80 rr | 1 w1"},
			kept:      states{"tcp 80 rr | 1 w1"},
			restoring: "! server 10.0.0.2:80 of tcp 192.0.2.80:80, removed by hand: restored\n+ server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 1, method nat\n",
			keeping:   "! server 10.0.0.2:80 of tcp 192.0.2.80:80, removed by hand: kept\n",
		},
		{
			name: "a server added by hand, and the same file", loaded: states{"tcp 80 rr | 1 w1"}, file: states{"tcp 80 rr | 1 w1"}, now: states{"tcp 80 rr | 1 w1, 2 w1"},
			kept:      states{"tcp 80 rr | 1 w1, 2 w1"},
			restoring: "! server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 1, method nat, added by hand: restored\n- server 10.0.0.2:80 of tcp 192.0.2.80:80\n",
			keeping:   "! server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 1, method nat, added by hand: kept\n",
		},
		{
			name: "a server added by hand, then written into the file", loaded: states{"tcp 80 rr | 1 w1"}, file: states{"tcp 80 rr | 1 w1, 2 w1"}, now: states{"tcp 80 rr | 1 w1, 2 w1"},
			restoring: "! server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 1, method nat, added by hand: adopted\n",
		},
		{
			name: "a service added by hand, and the file changes another", loaded: states{"tcp 80 rr | 1 w1"}, file: states{"tcp 80 rr | 1 w2"}, now: states{"tcp 80 rr | 1 w1", "udp 53 rr | 1 w1"},
			kept: states{"tcp 80 rr | 1 w2", "udp 53 rr | 1 w1"},
			restoring: "! service udp 192.0.2.80:53: scheduler rr, added by hand: restored\n! server 10.0.0.1:53 of udp 192.0.2.80:53: weight 1, method nat, added by hand: restored\n" +
				"- service udp 192.0.2.80:53\n~ server 10.0.0.1:80 of tcp 192.0.2.80:80: weight 1 -> 2\n",
			keeping: "! service udp 192.0.2.80:53: scheduler rr, added by hand: kept\n! server 10.0.0.1:53 of udp 192.0.2.80:53: weight 1, method nat, added by hand: kept\n" +
				"~ server 10.0.0.1:80 of tcp 192.0.2.80:80: weight 1 -> 2\n",
		},
		{
			name: "a service with a server added by hand leaves the file", loaded: states{"tcp 80 rr | 1 w1"}, file: nil, now: states{"tcp 80 rr | 1 w1, 2 w1"},
			restoring: "! server 10.0.0.2:80 of tcp 192.0.2.80:80: weight 1, method nat, added by hand: restored\n- service tcp 192.0.2.80:80\n",
		},
		{
			name: "a scheduler edited by hand, and the file changes a weight", loaded: states{"tcp 80 rr | 1 w1"}, file: states{"tcp 80 rr | 1 w2"}, now: states{"tcp 80 wlc | 1 w1"},
			kept: states{"tcp 80 wlc | 1 w2"},
			restoring: "! service tcp 192.0.2.80:80: scheduler rr -> wlc by hand: restored\n~ service tcp 192.0.2.80:80: scheduler wlc -> rr\n" +
				"~ server 10.0.0.1:80 of tcp 192.0.2.80:80: weight 1 -> 2\n",
			keeping: "! service tcp 192.0.2.80:80: scheduler rr -> wlc by hand: kept\n~ server 10.0.0.1:80 of tcp 192.0.2.80:80: weight 1 -> 2\n",
		},
		{
			name: "a setting leaves the file, and a timeout was set by hand", loaded: states{"drop_entry=3"}, file: nil, now: states{"drop_entry=3", "tcp=60"},
			kept:      states{"tcp=60"},
			restoring: "! timeout tcp: 900 -> 60 by hand: restored\n~ sysctl drop_entry: 3 -> 0\n~ timeout tcp: 60 -> 900\n",
			keeping:   "! timeout tcp: 900 -> 60 by hand: kept\n~ sysctl drop_entry: 3 -> 0\n",
		},
		{
			name: "the file changes marks that were changed by hand, too", loaded: states{"marks=1"}, file: states{"marks=2"}, now: states{"marks=3"},
			restoring: "! marks: 1 -> 3 by hand: replaced\n~ marks: 3 -> 2\n",
		},
		{
			name: "marks changed by hand, and a setting, and the same file", loaded: states{"marks=1"}, file: states{"marks=1"}, now: states{"marks=1,2", "sloppy_tcp=1"},
			kept:      states{"marks=1,2", "sloppy_tcp=1"},
			restoring: "! marks: 1 -> 1; 2 by hand: restored\n! sysctl sloppy_tcp: 0 -> 1 by hand: restored\n~ marks: 1; 2 -> 1\n~ sysctl sloppy_tcp: 1 -> 0\n",
			keeping:   "! marks: 1 -> 1; 2 by hand: kept\n! sysctl sloppy_tcp: 0 -> 1 by hand: kept\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.kept == nil {
				c.kept, c.keeping = c.file, c.restoring
			}
			base, file, now := running(t, c.loaded...), running(t, c.file...), running(t, c.now...)
			for _, p := range []struct {
				drift control.Drift
				want  states
				plan  string
			}{{control.DriftRestore, c.file, c.restoring}, {control.DriftKeep, c.kept, c.keeping}} {
				got := control.Merge(base, file, now, p.drift)
				if diff := cmp.Diff(flat(running(t, p.want...)), flat(got)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", p.drift, diff)
				}
				var plan strings.Builder
				if err := control.WritePlan(&plan, control.DriftFates(base, file, now, got), control.Diff(now, got)); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(p.plan, plan.String()); diff != "" {
					t.Errorf("the plan of %s (-want +got):\n%s", p.drift, diff)
				}
			}
		})
	}
}

// flat lists every value of a state by a path, the order of lists apart, with a
// path that ends in "/" for what is there at all. It is the reference's own view.
func flat(r control.Running) map[string]string {
	all := map[string]string{}
	for i := range r.Ruleset.Services {
		s := &r.Ruleset.Services[i]
		at := s.ServiceKey.String() + "/"
		all[at] = "there"
		all[at+"scheduler"] = fmt.Sprint(s.Scheduler, s.Flags)
		all[at+"persistence"] = fmt.Sprint(s.Persist, s.MaskBits, s.Netmask, s.Engine)
		all[at+"ops"], all[at+"clamp"] = fmt.Sprint(s.OnePacket), fmt.Sprint(s.ClampMSS)
		all[at+"sources"], all[at+"ports"], all[at+"toa"] = fmt.Sprint(s.Sources.Addrs), fmt.Sprint(s.Sources.Ports), fmt.Sprint(s.Sources.TOA)
		for _, rs := range s.Servers {
			at := at + rs.ServerKey.String() + "/"
			all[at] = "there"
			all[at+"weight"], all[at+"method"] = fmt.Sprint(rs.Weight), fmt.Sprint(rs.Method, rs.Tunnel)
			all[at+"thresholds"] = fmt.Sprint(rs.Upper, rs.Lower)
		}
	}
	var marks []string
	for _, m := range r.Ruleset.Marks {
		marks = append(marks, fmt.Sprintf("%+v", m))
	}
	all["marks"] = strings.Join(marks, " ")
	for name, value := range r.Sysctl {
		all["sysctl "+name] = value
	}
	all["timeouts tcp"], all["timeouts tcpfin"], all["timeouts udp"] = r.Timeouts.TCP.String(), r.Timeouts.TCPFin.String(), r.Timeouts.UDP.String()
	return all
}

// slowMerge is the merge of three states value by value, from the words of
// docs/reload.md alone.
func slowMerge(base, file, now map[string]string, keep bool) map[string]string {
	if !keep {
		return file
	}
	out := map[string]string{}
	for path := range merged(file, now) {
		if slowLives(path, base, file, now) {
			_, was := base[path]
			value, is := now[path]
			if !is || !was && file[path] != "" || base[path] != file[path] {
				value = file[path]
			}
			if _, inFile := file[path]; !inFile {
				value = now[path] // by hand
			}
			out[path] = value
		}
	}
	return out
}

// slowLives reports whether what a path stands for is there at the end: all that it
// is in must be, too.
func slowLives(path string, base, file, now map[string]string) bool {
	for i := range path {
		if path[i] != '/' {
			continue
		}
		at := path[:i+1]
		_, was := base[at]
		_, says := file[at]
		_, is := now[at]
		touched := false
		for p := range merged(base, file) {
			touched = touched || strings.HasPrefix(p, at) && base[p] != file[p]
		}
		switch {
		case was && !says: // the file lost it
			return false
		case !was && !says && !is:
			return false
		case was && says && !is && !touched: // deleted by hand
			return false
		}
		if !is && says {
			// It comes back as the file has it, with all that is in it.
			_, there := file[path]
			return there
		}
	}
	return true
}

func merged(a, b map[string]string) map[string]string {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

// drawState draws a state from few keys and values, so that states often meet.
func drawState(t *rapid.T, label string) control.Running {
	r := control.Running{Sysctl: map[string]string{}, Timeouts: control.DefaultTimeouts()}
	few := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, label+" "+what) }
	for i := range 3 {
		if few(3, "service") == 0 {
			continue
		}
		s := lvs.VirtualService{
			ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.80"), Port: uint16(80 + i)},
			Scheduler:  []string{"rr", "sh"}[few(2, "scheduler")], Flags: lvs.SchedFlags(few(2, "flags")),
			Persist: time.Duration(few(2, "persist")) * time.Minute, ClampMSS: few(2, "clamp") == 1,
		}
		for j := range 3 {
			if few(3, "server") == 0 {
				continue
			}
			upper := uint32(few(2, "upper"))
			s.Servers = append(s.Servers, lvs.RealServer{
				ServerKey: lvs.ServerKey{RIP: packet.AddrFrom4([]byte{10, 0, 0, byte(j)}), Port: s.Port},
				Method:    []lvs.Method{lvs.Masq, lvs.Tunnel}[few(2, "method")], Weight: few(3, "weight"), Upper: upper,
			})
		}
		if few(2, "order") == 1 {
			slices.Reverse(s.Servers)
		}
		r.Ruleset.Services = append(r.Ruleset.Services, s)
	}
	for range few(3, "marks") {
		r.Ruleset.Marks = append(r.Ruleset.Marks, lvs.MarkRule{Mark: uint32(1 + few(2, "mark")), Link: -1})
	}
	r.Sysctl["drop_entry"], r.Sysctl["sloppy_tcp"] = fmt.Sprint(few(4, "setting")), fmt.Sprint(few(2, "setting"))
	r.Timeouts.UDP = time.Duration(1+few(2, "timeout")) * time.Minute
	return r
}

// TestTheMergeIsTheSlowOne compares with the reference; and the plan is what leads
// from one state to the other, no step more.
func TestTheMergeIsTheSlowOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, file, now := drawState(t, "loaded"), drawState(t, "file"), drawState(t, "now")
		for _, drift := range []control.Drift{control.DriftRestore, control.DriftKeep} {
			got := control.Merge(base, file, now, drift)
			want := slowMerge(flat(base), flat(file), flat(now), drift == control.DriftKeep)
			if diff := cmp.Diff(want, flat(got)); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", drift, diff)
			}
			if nothing, same := len(control.Diff(now, got)) == 0, maps.Equal(flat(now), flat(got)); nothing != same {
				t.Fatalf("%s: %d steps between states that are the same: %v", drift, len(control.Diff(now, got)), same)
			}
			if again := control.Diff(got, control.Merge(file, file, got, drift)); len(again) > 0 {
				t.Fatalf("%s: the same file again leads to %v", drift, again)
			}
			for _, d := range control.DriftFates(base, file, now, got) {
				if d.Fate == control.FateRestored && drift == control.DriftKeep && d.What == "marks" {
					t.Fatalf("kept and restored: %v", d)
				}
			}
		}
	})
}

// TestEveryValueIsMerged keeps the tables of values complete: a change of any field
// of a service or a server is a step of a plan.
func TestEveryValueIsMerged(t *testing.T) {
	key := map[string]bool{"ServiceKey": true, "ServerKey": true, "Servers": true}
	set := func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			v.SetString("sip")
		case reflect.Int, reflect.Int64:
			v.SetInt(int64(24 * time.Second))
		case reflect.Uint8, reflect.Uint32, reflect.Uint16:
			v.SetUint(1)
		case reflect.Bool:
			v.SetBool(true)
		default:
			switch p := v.Addr().Interface().(type) {
			case *packet.Addr:
				*p = packet.MustParseAddr("255.0.255.0")
			case *lvs.TunnelInfo:
				p.Type = lvs.GRE
			case *[]packet.Addr:
				*p = []packet.Addr{packet.MustParseAddr("10.9.9.9")}
			case *lvs.PortRange:
				*p = lvs.PortRange{From: 1, To: 2}
			default:
				t.Fatalf("a field of type %T: teach this test", p)
			}
		}
	}
	walk := func(of any, changed func(name string, differs func(reflect.Value))) {
		kind := reflect.TypeOf(of)
		for i := range kind.NumField() {
			f := kind.Field(i)
			switch {
			case key[f.Name]:
			case f.Name == "Sources":
				for j := range f.Type.NumField() {
					changed("Sources."+f.Type.Field(j).Name, func(v reflect.Value) { set(v.Field(i).Field(j)) })
				}
			default:
				changed(f.Name, func(v reflect.Value) { set(v.Field(i)) })
			}
		}
	}
	state := func() control.Running {
		r := running(t, "tcp 80 rr p60 | 1 w1")
		r.Ruleset.Services[0].Servers[0].Method = lvs.Tunnel
		return r
	}
	walk(lvs.VirtualService{}, func(name string, differs func(reflect.Value)) {
		to := state()
		if name == "MaskBits" {
			to.Ruleset.Services[0].MaskBits = 24
		} else {
			differs(reflect.ValueOf(&to.Ruleset.Services[0]).Elem())
		}
		if steps := control.Diff(state(), to); len(steps) != 1 {
			t.Errorf("another %s of a service leads to %v", name, steps)
		}
		if got := control.Merge(state(), to, state(), control.DriftKeep); !reflect.DeepEqual(flat(got), flat(to)) {
			t.Errorf("another %s of a service is not taken from the file", name)
		}
	})
	walk(lvs.RealServer{}, func(name string, differs func(reflect.Value)) {
		to := state()
		differs(reflect.ValueOf(&to.Ruleset.Services[0].Servers[0]).Elem())
		if steps := control.Diff(state(), to); len(steps) != 1 {
			t.Errorf("another %s of a server leads to %v", name, steps)
		}
	})
}
