package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"pktdirector/testbed"
)

// newLabRoleCommand gives this host a role.
func newLabRoleCommand() *cobra.Command {
	var f roleFlags
	cmd := &cobra.Command{
		Use:   "role {client|router|director|realserver}",
		Short: "Make this host a client, router, director or real server",
		Long: `Role configures the machine it runs on as a host of a lab: names and addresses of
its interfaces, routes, kernel parameters. It prints each step as the command
that a person would type. Done twice, it changes nothing the second time. With
--dry-run it only prints them, also on a machine that has no such interface.

With --lab and --host the rest is taken from the lab's topology.`,
		Example: `  pktdirector lab role realserver --mode dr --vip 192.0.2.80 \
      --nic lan=02:00:00:00:06:0b,192.0.2.11/24 --gateway 192.0.2.1 --dry-run
  pktdirector lab role --lab dr --host rs1 --install`,
		Args: cobra.MaximumNArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			c, err := f.config(args)
			if err != nil {
				return usageError(err)
			}
			if f.install && f.host == "" {
				return usageError(errors.New("--install needs --lab and --host: what runs on a host stands in the topology"))
			}
			facts, err := testbed.ReadFacts(c)
			if err != nil {
				return err
			}
			if f.dryRun {
				supposeNICs(cmd, c, &facts)
			}
			ops, err := c.Plan(facts)
			if err != nil {
				return err
			}
			if f.install {
				units, err := f.units(facts)
				if err != nil {
					return err
				}
				ops = append(ops, units...)
			}
			for _, op := range ops {
				fmt.Fprintln(cmd.OutOrStdout(), op)
				if f.dryRun {
					continue
				}
				if err := op.Apply(); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	f.register(cmd)
	return cmd
}

// supposeNICs lets a plan be made on another machine than the one it is for:
// an interface that this host does not have counts as named already.
func supposeNICs(cmd *cobra.Command, c testbed.HostConfig, facts *testbed.Facts) {
	for _, n := range c.NICs {
		if _, there := facts.NICs[n.MAC.MAC]; !there {
			fmt.Fprintf(cmd.ErrOrStderr(), "# this host has no interface with MAC %s: suppose it is called %s\n", n.MAC, n.Segment)
			facts.NICs[n.MAC.MAC] = n.Segment
		}
	}
}

// roleFlags are the flags of "lab role".
type roleFlags struct {
	mode, vip, gateway string
	nics, routes       []string
	lab, host          string
	tundev             bool
	dryRun, install    bool
}

func (f *roleFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.mode, "mode", "", "forwarding method: nat, dr, tun or fullnat")
	fl.StringVar(&f.vip, "vip", "", "the virtual service's address")
	fl.StringArrayVar(&f.nics, "nic", nil, "interface as name=MAC,address/prefix; the one with that MAC gets the name")
	fl.StringVar(&f.gateway, "gateway", "", "gateway of the default route")
	fl.StringArrayVar(&f.routes, "route", nil, "static route as prefix=gateway")
	fl.BoolVar(&f.tundev, "tundev", false, "director: its link is a TUN device")
	fl.StringVar(&f.lab, "lab", "", "take everything from this lab's topology")
	fl.StringVar(&f.host, "host", "", "host of the lab")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the steps, do nothing")
	fl.BoolVar(&f.install, "install", false, "also start what runs on the host, as systemd services")
	cmd.MarkFlagsRequiredTogether("lab", "host")
	for _, other := range []string{"mode", "vip", "nic", "gateway", "route"} {
		cmd.MarkFlagsMutuallyExclusive("lab", other)
	}
}

// config joins flags and arguments to a host's configuration.
func (f *roleFlags) config(args []string) (testbed.HostConfig, error) {
	if f.host != "" {
		t, h, err := f.find()
		if err != nil {
			return testbed.HostConfig{}, err
		}
		if len(args) > 0 && args[0] != string(h.Role) {
			return testbed.HostConfig{}, fmt.Errorf("%s of lab %s is a %s, not a %s", h.Name, t.Name, h.Role, args[0])
		}
		c := t.Config(h)
		c.Tundev = f.tundev
		return c, nil
	}
	if len(args) == 0 {
		return testbed.HostConfig{}, errors.New("the role is missing: client, router, director or realserver, or --lab and --host")
	}
	c := testbed.HostConfig{Tundev: f.tundev}
	var err error
	if err := c.Role.UnmarshalText([]byte(args[0])); err != nil {
		return c, err
	}
	if err := c.Mode.UnmarshalText([]byte(f.mode)); err != nil {
		return c, fmt.Errorf("--mode: %w", err)
	}
	if c.VIP, err = netip.ParseAddr(f.vip); err != nil {
		return c, fmt.Errorf("--vip %q: write an address, such as 192.0.2.80", f.vip)
	}
	if f.gateway != "" {
		if c.Gateway, err = netip.ParseAddr(f.gateway); err != nil {
			return c, fmt.Errorf("--gateway %q: write an address, such as 192.0.2.1", f.gateway)
		}
	}
	if len(f.nics) == 0 {
		return c, errors.New("--nic is missing: a host has at least one interface")
	}
	for _, s := range f.nics {
		n, err := testbed.ParseNIC(s)
		if err != nil {
			return c, err
		}
		c.NICs = append(c.NICs, n)
	}
	for _, s := range f.routes {
		r, err := testbed.ParseRoute(s)
		if err != nil {
			return c, err
		}
		c.Routes = append(c.Routes, r)
	}
	return c, nil
}

// find returns the topology and host that --lab and --host name.
func (f *roleFlags) find() (*testbed.Topology, *testbed.Host, error) {
	t, err := testbed.Load(f.lab)
	if err != nil {
		return nil, nil, err
	}
	h, err := t.Host(f.host)
	return t, h, err
}

// units returns the steps that keep a lab's programs running on a host that is
// a machine of its own.
func (f *roleFlags) units(facts testbed.Facts) ([]testbed.Op, error) {
	t, h, err := f.find()
	if err != nil {
		return nil, err
	}
	link := testbed.AFPacket
	if f.tundev {
		link = testbed.Tundev
	}
	return t.Units(h, link, facts.Decap), nil
}
