package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"

	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

// A machine that "lab role" was run on, as a Vagrantfile does, is configured
// like the lab's host, also when it was run twice.
func TestRolesOnBareMachines(t *testing.T) {
	for _, name := range testbed.Names() {
		top := topology(t, name)
		want := labStates(t, top)
		for i := range top.Hosts {
			h := &top.Hosts[i]
			byFlags := append([]string{"lab", "role"}, top.Config(h).Args()...)
			byName := []string{"lab", "role", "--lab", name, "--host", h.Name}
			for how, runs := range map[string][][]string{
				"by flags": {byFlags}, "by name, twice": {byName, byName},
			} {
				t.Run(name+" "+h.Name+" "+how, func(t *testing.T) {
					bareMachine(t, h)
					for _, args := range runs {
						if out, err := exec.Command(program(t), args...).CombinedOutput(); err != nil {
							t.Fatalf("%q: %v\n%s", args, err, out)
						}
					}
					got, err := state()
					if err != nil {
						t.Fatal(err)
					}
					// The NICs' order is that of their making, not the role's doing.
					if diff := cmp.Diff(want[h.Name], got, cmpopts.SortSlices(strings.Compare)); diff != "" {
						t.Errorf("host state (-lab +machine):\n%s", diff)
					}
				})
			}
		}
	}
}

// labStates returns the states of a lab's hosts, before anything runs on them.
func labStates(t *testing.T, top *testbed.Topology) map[string]hostState {
	t.Helper()
	states := map[string]hostState{}
	t.Run(top.Name+" as a lab", func(t *testing.T) {
		nstest.Enter(t)
		l, err := testbed.Build(top, testbed.Options{Link: testbed.AFPacket})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, h := range top.Hosts {
			err := l.Do(h.Name, func() error {
				s, err := state()
				states[h.Name] = s
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	return states
}

// bareMachine gives the test a network namespace with the host's NICs as a
// fresh machine has them: the system's names, no addresses, down.
func bareMachine(t *testing.T, h *testbed.Host) {
	t.Helper()
	far := nstest.New(t)
	nstest.Enter(t)
	for i, n := range h.NICs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth" + string(rune('1'+i))
		attrs.HardwareAddr = n.MAC.MAC[:]
		v := netlink.NewVeth(attrs)
		v.PeerName, v.PeerNamespace = "far"+attrs.Name, netlink.NsFd(far.FD())
		if err := netlink.LinkAdd(v); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRoleDryRunChangesNothing(t *testing.T) {
	top := topology(t, "dr")
	h, err := top.Host("rs1")
	if err != nil {
		t.Fatal(err)
	}
	bareMachine(t, h)
	before, err := state()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program(t), "lab", "role", "--lab", "dr", "--host", "rs1", "--dry-run", "--install").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"ip addr add 192.0.2.80/32 dev lo scope host\n", "/etc/systemd/system/pktdirector-serve.service", "systemctl enable pktdirector-serve.service"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	after, err := state()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("host state changed (-before +after):\n%s", diff)
	}
}

// A plan can be read on a machine that it is not for.
func TestRoleDryRunWithoutTheNIC(t *testing.T) {
	args := []string{"lab", "role", "realserver", "--mode", "dr", "--vip", "192.0.2.80",
		"--nic", "lan=02:00:00:00:99:0b,192.0.2.11/24", "--gateway", "192.0.2.1"}
	r := pktdirector(t, "", append(args, "--dry-run")...)
	if r.code != 0 || !strings.Contains(r.out, "ip addr add 192.0.2.11/24 dev lan\n") || strings.Contains(r.out, "#") ||
		!strings.Contains(r.err, "no interface with MAC 02:00:00:00:99:0b: suppose it is called lan") {
		t.Errorf("%+v", r)
	}
	nstest.Enter(t)
	if r := pktdirector(t, "", args...); r.code != exitFailed || !strings.Contains(r.err, "this host has no interface with MAC") {
		t.Errorf("in earnest: %+v", r)
	}
}

func TestRoleUsage(t *testing.T) {
	nic := []string{"--nic", "lan=02:00:00:00:00:01,192.0.2.1/24"}
	tests := map[string]struct {
		args []string
		want string
	}{
		"no role":            {nil, "the role is missing"},
		"unknown role":       {[]string{"king"}, `role "king" is not known`},
		"unknown mode":       {append([]string{"router", "--mode", "fnat"}, nic...), `--mode: forwarding method "fnat"`},
		"VIP missing":        {append([]string{"router", "--mode", "nat"}, nic...), `--vip ""`},
		"no NIC":             {[]string{"router", "--mode", "nat", "--vip", "192.0.2.9"}, "--nic is missing"},
		"bad gateway":        {append([]string{"router", "--mode", "nat", "--vip", "192.0.2.9", "--gateway", "x"}, nic...), `--gateway "x"`},
		"bad route":          {append([]string{"router", "--mode", "nat", "--vip", "192.0.2.9", "--route", "x"}, nic...), `route "x": write`},
		"unknown lab":        {[]string{"--lab", "moon", "--host", "rs1"}, `lab "moon" is not known`},
		"unknown host":       {[]string{"--lab", "dr", "--host", "rs9"}, `lab dr has no host "rs9"`},
		"another role":       {[]string{"router", "--lab", "dr", "--host", "rs1"}, "rs1 of lab dr is a realserver, not a router"},
		"install, no lab":    {append([]string{"router", "--mode", "nat", "--vip", "192.0.2.9", "--install"}, nic...), "--install needs --lab and --host"},
		"lab and flags both": {[]string{"--lab", "dr", "--host", "rs1", "--vip", "192.0.2.9"}, "[lab vip]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(program(t), slices.Concat([]string{"lab", "role"}, tt.args)...).CombinedOutput()
			exit, ok := err.(*exec.ExitError)
			if !ok || exit.ExitCode() != exitUsage {
				t.Errorf("ended with %v, want exit code %d", err, exitUsage)
			}
			if !strings.Contains(string(out), tt.want) {
				t.Errorf("said %q, want %q in it", out, tt.want)
			}
		})
	}
}
