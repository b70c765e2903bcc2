package control_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

const web = "tcp-192.0.2.10-80"

func given[N any](n N) *N { return &n }

func webSpec() control.ServiceSpec {
	return control.ServiceSpec{Scheduler: "wrr", Method: "nat", Servers: []control.ServerSpec{
		{Address: "10.2.0.1", Port: given[uint16](8080), Weight: given(1)},
		{Address: "10.2.0.2", Port: given[uint16](8080), Weight: given(2), Method: "fullnat"},
	}}
}

// done fails unless a request changed something, or nothing.
func done(t *testing.T, what string, changed bool) func(control.Outcome, error) {
	return func(o control.Outcome, err error) {
		t.Helper()
		if err != nil || o.Changed != changed || (len(o.Changes) > 0) != changed {
			t.Errorf("%s: %+v, %v; want changed %v", what, o, err, changed)
		}
	}
}

// refused fails unless the request was refused with the status, the place and words.
func refused(t *testing.T, what string, err error, status int, place, words string) {
	t.Helper()
	p := (*control.Problem)(nil)
	if !errors.As(err, &p) || p.Status != status || !strings.Contains(err.Error(), words) || len(p.Faults) == 0 || p.Faults[0].Place != place {
		t.Errorf("%s: %v (%+v)\nwant status %d, place %q, words %q", what, err, p, status, place, words)
	}
}

func TestEveryChangeMadeTwiceChangesNothing(t *testing.T) {
	_, c, _ := serveLive(t)
	ctx := t.Context()
	for _, again := range []bool{false, true} {
		done(t, "put a service", !again)(c.PutService(ctx, web, webSpec()))
	}
	for _, again := range []bool{false, true} {
		done(t, "put a server", !again)(c.PutServer(ctx, web, "10.2.0.3-80", control.ServerSpec{Method: "dr"}))
		done(t, "patch a server", !again)(c.PatchServer(ctx, web, "10.2.0.1-8080", control.Patch{"weight": 7}))
		done(t, "patch a service", !again)(c.PatchService(ctx, web, control.Patch{"persistence_timeout": 300}))
		done(t, "delete a server", !again)(c.DeleteServer(ctx, web, "10.2.0.2-8080"))
		done(t, "put a service by mark", !again)(c.PutService(ctx, "fwm-7-ipv6", control.ServiceSpec{Scheduler: "sh", Flags: []string{"sh-port"}}))
		done(t, "put a service for every port", !again)(c.PutService(ctx, "udp-2001:db8::10-0", control.ServiceSpec{Timeout: 60, Granularity: 64}))
		if err := c.Zero(ctx, ""); err != nil {
			t.Error(err)
		}
		if err := c.Zero(ctx, web); err != nil {
			t.Error(err)
		}
		done(t, "delete a server of no service", false)(c.DeleteServer(ctx, "tcp-192.0.2.99-80", "10.2.0.2-8080"))
		if again {
			break
		}
		// What is read can be put, and changes nothing.
		all, err := c.Services(ctx)
		if err != nil || len(all) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		for _, s := range all {
			done(t, "put "+s.ID+" as it is", false)(c.PutService(ctx, s.ID, s.Spec))
			servers, err := c.Servers(ctx, s.ID)
			if err != nil {
				t.Error(err)
			}
			for _, rs := range servers {
				done(t, "put "+rs.ID+" as it is", false)(c.PutServer(ctx, s.ID, rs.ID, rs.Spec))
			}
		}
		set, err := c.Ruleset(ctx)
		if err != nil {
			t.Fatal(err)
		}
		done(t, "put the ruleset as it is", false)(c.PutRuleset(ctx, set, false))
		// A server that is deleted makes the second round differ.
		done(t, "put it back", true)(c.PutServer(ctx, web, "10.2.0.2-8080", control.ServerSpec{Method: "fullnat", Weight: given(2)}))
		done(t, "and away", true)(c.DeleteServer(ctx, web, "10.2.0.2-8080"))
	}
	for _, again := range []bool{false, true} {
		done(t, "delete a service", !again)(c.DeleteService(ctx, web))
		done(t, "put an empty ruleset", !again)(c.PutRuleset(ctx, control.RulesetSpec{Services: []control.ServiceSpec{}}, false))
	}
}

// TestAPatchKeepsWhatItDoesNotName is field case 23: an edit of the weight never
// changes the forwarding method.
func TestAPatchKeepsWhatItDoesNotName(t *testing.T) {
	l, c, _ := serveLive(t)
	ctx := t.Context()
	for _, line := range []string{
		"-A -t 192.0.2.10:80 -s wrr -p 300 -M 255.0.255.0 --pe sip", "-a -t 192.0.2.10:80 -r 10.2.0.1:80 -m -w 1 -x 100 -y 50",
		"-a -t 192.0.2.10:80 -r 10.2.0.2:80 -i --tun-type gue --tun-port 6080 --tun-csum", "-a -t 192.0.2.10:80 -r 127.0.0.1:80 -g",
	} {
		if a := l.Ipvsadm(control.Line{Args: strings.Fields(line)}); a.Code != 0 {
			t.Fatal(line, a)
		}
	}
	before := l.Ruleset()
	for i, server := range []string{"10.2.0.1-80", "10.2.0.2-80", "127.0.0.1-80"} {
		done(t, server, true)(c.PatchServer(ctx, web, server, control.Patch{"weight": 5}))
		before.Services[0].Servers[i].Weight = 5
	}
	done(t, "the scheduler", true)(c.PatchService(ctx, web, control.Patch{"scheduler": "rr"}))
	before.Services[0].Scheduler = "rr"
	if diff := cmp.Diff(before, l.Ruleset(), opaque()); diff != "" {
		t.Errorf("more than was named has changed (-want +got):\n%s", diff)
	}
	done(t, "thresholds by default", true)(c.PatchServer(ctx, web, "10.2.0.1-80", control.Patch{"uthreshold": nil, "lthreshold": nil}))
	done(t, "no tunnel, another method", true)(c.PatchServer(ctx, web, "10.2.0.2-80", control.Patch{"tunnel": nil, "method": "nat"}))
	done(t, "a tunnel's port", true)(c.PatchServer(ctx, web, "10.2.0.2-80", control.Patch{"tunnel": map[string]any{"type": "gue", "port": 1}, "method": "tun"}))
	done(t, "one member of a tunnel", true)(c.PatchServer(ctx, web, "10.2.0.2-80", control.Patch{"tunnel": map[string]any{"port": 2}}))
	servers := l.Ruleset().Services[0].Servers
	if servers[0].Upper != 0 || servers[1].Tunnel != (lvs.TunnelInfo{Type: lvs.GUE, Port: 2}) {
		t.Errorf("%+v", servers)
	}

	_, err := c.PutServer(ctx, web, "10.2.0.1-80", control.ServerSpec{Weight: given(9)})
	refused(t, "a PUT without the method", err, 422, "", "method is missing: write nat, dr, tun or fullnat")
	_, err = c.PatchServer(ctx, web, "10.2.0.9-80", control.Patch{"weight": 5})
	refused(t, "a PATCH of what is not there", err, 404, "server", "has no server 10.2.0.9:80: put it first")
	_, err = c.PatchServer(ctx, web, "10.2.0.1-80", control.Patch{"port": 81})
	refused(t, "another server", err, 422, "", "speaks of 10.2.0.1:81, but the change is of 10.2.0.1:80")
	_, err = c.PatchService(ctx, web, control.Patch{"port": 81})
	refused(t, "another service", err, 422, "", "speaks of TCP 192.0.2.10:81")
	_, err = c.PatchService(ctx, web, control.Patch{"fwmark": 1})
	refused(t, "a mark", err, 422, "vip", "a service by fwmark has none")
}

func TestATransactionIsAllOrNothing(t *testing.T) {
	l, c, _ := serveLive(t)
	ctx := t.Context()
	done(t, "a service", true)(c.PutService(ctx, web, webSpec()))
	before := l.Ruleset()
	spec := func(s string) []byte { return []byte(s) }
	changes := []control.Change{
		{Do: "patch", Service: web, Server: "10.2.0.1-8080", Spec: spec(`{"weight": 0}`)},
		{Do: "put", Service: web, Server: "10.2.0.3-80", Spec: spec(`{"method": "tun"}`)},
		{Do: "delete", Service: web, Server: "10.2.0.2-8080"},
		{Do: "put", Service: "udp-192.0.2.10-53", Spec: spec(`{"scheduler": "rr", "ops": true, "servers": [{"address": "10.2.0.4", "method": "dr"}]}`)},
	}
	for _, bad := range []struct {
		name   string
		change control.Change
		status int
		place  string
		words  string
	}{
		{"a weight that is none", control.Change{Do: "put", Service: "tcp-192.0.2.11-80", Spec: spec(`{"method": "nat", "servers": [{"address": "10.2.0.1"}, {"address": "10.2.0.2", "weight": -1}]}`)}, 422, "changes[4].spec.servers[1].weight", "-1 is out of range: 0 to 2147483647"},
		{"an unknown key", control.Change{Do: "patch", Service: web, Spec: spec(`{"sheduler": "rr"}`)}, 422, "changes[4].spec.sheduler", "is not known here: the keys are vip"},
		{"an unknown scheduler", control.Change{Do: "patch", Service: web, Spec: spec(`{"scheduler": "best"}`)}, 422, "changes[4].spec.scheduler", `scheduler "best" is not known: one of`},
		{"a key twice", control.Change{Do: "patch", Service: web, Spec: spec(`{"scheduler": "rr", "scheduler": "wrr"}`)}, 422, "changes[4].spec.scheduler", "a second time"},
		{"a text for a number", control.Change{Do: "patch", Service: web, Server: "10.2.0.1-8080", Spec: spec(`{"weight": "5"}`)}, 422, "changes[4].spec.weight", `"5" is not a whole number`},
		{"a fraction", control.Change{Do: "patch", Service: web, Server: "10.2.0.1-8080", Spec: spec(`{"weight": 1.5}`)}, 422, "changes[4].spec.weight", `is not a whole number`},
		{"a huge number", control.Change{Do: "patch", Service: web, Server: "10.2.0.1-8080", Spec: spec(`{"weight": 99999999999999999999999}`)}, 422, "changes[4].spec.weight", `99999999999999999999999`},
		{"a service that was not there", control.Change{Do: "put", Service: "tcp-192.0.2.12-80", Server: "10.2.0.1-80", Spec: spec(`{"method": "nat"}`)}, 404, "changes[4].service", "there is no service TCP 192.0.2.12:80: put it first"},
		{"no such change", control.Change{Do: "add", Service: web}, 422, "changes[4].do", `"add" is no change: write put, patch or delete`},
		{"no name", control.Change{Do: "put", Service: "192.0.2.10:80"}, 422, "changes[4].service", "names no service: write protocol, VIP and port"},
		{"no server's name", control.Change{Do: "put", Service: web, Server: "10.2.0.1:80"}, 422, "changes[4].server", "names no real server"},
		{"a put without a spec", control.Change{Do: "put", Service: web}, 400, "changes[4].spec", "no JSON"},
		{"a list", control.Change{Do: "patch", Service: web, Spec: spec(`[]`)}, 422, "changes[4].spec", "must be a mapping"},
		{"a port that dr cannot have", control.Change{Do: "patch", Service: web, Server: "10.2.0.1-8080", Spec: spec(`{"method": "dr"}`)}, 422, "changes[4].spec.port", "8080 differs from the service's port 80"},
		{"a persistence that port 0 needs", control.Change{Do: "put", Service: "tcp-192.0.2.10-0", Spec: spec(`{}`)}, 422, "changes[4].spec.port", "add persistence_timeout"},
	} {
		_, err := c.Transact(ctx, control.Transaction{Changes: append(changes[:4:4], bad.change)})
		refused(t, bad.name, err, bad.status, bad.place, bad.words)
		if diff := cmp.Diff(before, l.Ruleset(), opaque()); diff != "" {
			t.Fatalf("%s: something has changed:\n%s", bad.name, diff)
		}
	}
	dry, err := c.Transact(ctx, control.Transaction{Changes: changes, DryRun: true})
	if err != nil || dry.Changed || len(dry.Changes) != 5 {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	if diff := cmp.Diff(before, l.Ruleset(), opaque()); diff != "" {
		t.Fatalf("dry run: something has changed:\n%s", diff)
	}
	got, err := c.Transact(ctx, control.Transaction{Changes: changes})
	if want := []string{
		"server 10.2.0.1:8080 of TCP 192.0.2.10:80: weight 1 -> 0", "server 10.2.0.3:80 of TCP 192.0.2.10:80: added, method tun, weight 1",
		"server 10.2.0.2:8080 of TCP 192.0.2.10:80: removed", "service UDP 192.0.2.10:53: added, scheduler rr",
		"server 10.2.0.4:53 of UDP 192.0.2.10:53: added, method dr, weight 1",
	}; err != nil || !got.Changed || cmp.Diff(want, got.Changes) != "" {
		t.Errorf("%+v, %v; want %q", got, err, want)
	}
	done(t, "the same again", false)(c.Transact(ctx, control.Transaction{Changes: changes}))

	l.refuse = errors.New("the host cannot be kept off the service")
	_, err = c.DeleteService(ctx, web)
	if p := (*control.Problem)(nil); !errors.As(err, &p) || p.Status != 409 || !strings.Contains(err.Error(), "the host cannot be kept off") {
		t.Errorf("a host that does not follow: %v", err)
	}
}

func TestARulesetIsPutAsAWhole(t *testing.T) {
	l, c, _ := serveLive(t)
	ctx := t.Context()
	spec := webSpec()
	spec.VIP, spec.Protocol, spec.Port = "192.0.2.10", "tcp", given[uint16](80)
	other := control.ServiceSpec{FWMark: 3, Scheduler: "rr"}
	set := control.RulesetSpec{Services: []control.ServiceSpec{spec, other}}
	o, err := c.PutRuleset(ctx, set, true)
	if err != nil || o.Changed || len(o.Changes) != 4 || len(l.Ruleset().Services) != 0 {
		t.Errorf("dry run: %+v, %v", o, err)
	}
	done(t, "put", true)(c.PutRuleset(ctx, set, false))
	bad := spec
	bad.Servers = append([]control.ServerSpec{{Address: "10.2.0.9", Weight: given(-4)}}, spec.Servers...)
	for _, r := range []struct {
		name  string
		set   control.RulesetSpec
		place string
		words string
	}{
		{"a weight", control.RulesetSpec{Services: []control.ServiceSpec{other, bad}}, "services[1].servers[0].weight", "-4 is out of range: 0 to"},
		{"a service twice", control.RulesetSpec{Services: []control.ServiceSpec{other, spec, spec}}, "services[2]", "stands already in services[1]"},
		{"nothing", control.RulesetSpec{}, "services", "has no value"},
	} {
		_, err := c.PutRuleset(ctx, r.set, false)
		refused(t, r.name, err, 422, r.place, r.words)
	}
	if n := len(l.Ruleset().Services); n != 2 {
		t.Errorf("%d services are left", n)
	}
	_, err = c.Service(ctx, "tcp-192.0.2.77-80")
	if p := (*control.Problem)(nil); !errors.As(err, &p) || p.Status != 404 {
		t.Errorf("a service that is not there: %v", err)
	}
	_, err = c.Server(ctx, web, "10.2.0.77-80")
	if p := (*control.Problem)(nil); !errors.As(err, &p) || p.Status != 404 {
		t.Errorf("a server that is not there: %v", err)
	}
	got, err := c.Server(ctx, web, "10.2.0.2-8080")
	if err != nil || got.Weight != 2 || got.Method != "FullNat" || got.Spec.Method != "fullnat" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNamesInPathsAreReadBack for keys of all kinds.
func TestNamesInPathsAreReadBack(t *testing.T) {
	for _, k := range []lvs.ServiceKey{
		{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80},
		{Proto: packet.SCTP, VIP: packet.MustParseAddr("2001:db8::10"), Port: 65535},
		{Proto: packet.UDP, VIP: packet.MustParseAddr("::1"), Port: 0},
		{Mark: 1}, {Mark: 1<<32 - 1, V6: true},
	} {
		if got, err := control.ParseServiceID(control.ServiceID(k)); err != nil || got != k {
			t.Errorf("%s: %v, %v", control.ServiceID(k), got, err)
		}
	}
	for _, id := range []string{"", "tcp", "tcp-192.0.2.10", "TCP-192.0.2.10-80", "tcp-192.0.2.10-080", "tcp-192.0.2.10-65536", "icmp-192.0.2.10-0",
		"tcp-::ffff:192.0.2.10-80", "tcp-fe80::1%eth0-80", "fwm-0", "fwm-01", "fwm-4294967296", "fwm-1-ipv4", "fwm--1", "tcp-192.0.2.10-80-1"} {
		if k, err := control.ParseServiceID(id); err == nil {
			t.Errorf("%q was read as %v", id, k)
		}
	}
}

// TestManyChangeAtOnce: whatever the order, each transaction is there whole.
func TestManyChangeAtOnce(t *testing.T) {
	l, c, _ := serveLive(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 25 {
				w := rng.IntN(100)
				var all []control.Change
				for _, port := range []int{81, 82} {
					id := fmt.Sprintf("tcp-192.0.2.10-%d", port)
					all = append(all, control.Change{Do: "put", Service: id, Spec: fmt.Appendf(nil,
						`{"scheduler": "rr", "method": "nat", "servers": [{"address": "10.2.0.1", "weight": %d}, {"address": "10.2.0.2", "weight": %[1]d}]}`, w)})
				}
				var err error
				switch i % 5 {
				case 0:
					_, err = c.PutService(ctx, web, webSpec())
				case 1:
					_, err = c.DeleteService(ctx, web)
				case 2:
					l.Ipvsadm(control.Line{Args: strings.Fields("-A -t 192.0.2.11:80")})
					_, err = c.Services(ctx)
				default:
					_, err = c.Transact(ctx, control.Transaction{Changes: all})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	weights := map[int]bool{}
	for _, s := range l.Ruleset().Services {
		if s.Port == 81 || s.Port == 82 {
			for _, rs := range s.Servers {
				weights[rs.Weight] = true
			}
		}
	}
	if len(weights) != 1 {
		t.Errorf("weights of several transactions: %v", weights)
	}
}
