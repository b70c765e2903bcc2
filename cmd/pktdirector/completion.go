package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pktdirector/control"
	"pktdirector/sched"
)

// completeWithin is how long a shell waits for what a running director knows.
const completeWithin = time.Second

// addCompletion has shells complete what the flags of all commands take: files,
// and what the running director has.
func addCompletion(cmd *cobra.Command) {
	values := map[string]func(*control.Status) []string{
		"service": serviceIDs,
		"server":  func(s *control.Status) []string { return serverNames(s, "") },
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "config":
			_ = cmd.MarkFlagFilename(f.Name, "yaml", "yml") // the flag is there
		case "control", "ca", "cert", "key", "token-file":
			_ = cmd.MarkFlagFilename(f.Name)
		}
		if list := values[f.Name]; list != nil {
			// Whoever registered something better keeps it: then this is an error.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				address := ""
				if c := cmd.Flags().Lookup("control"); c != nil {
					address = c.Value.String()
				}
				return known(address, list), cobra.ShellCompDirectiveNoFileComp
			})
		}
	})
	for _, c := range cmd.Commands() {
		addCompletion(c)
	}
}

// known asks the director for what list finds in its status; nothing where none
// answers.
func known(address string, list func(*control.Status) []string) []string {
	address = cmp.Or(address, os.Getenv("PKTDIRECTOR_CONTROL"), control.DefaultSocket)
	if !strings.HasPrefix(address, "/") {
		return nil // a shell asks at each key: the host's own director only
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	status, err := control.NewClient(address).Status(ctx)
	if err != nil {
		return nil
	}
	return list(status)
}

// serviceIDs lists the services as control.ServiceID names them.
func serviceIDs(s *control.Status) (all []string) {
	for i := range s.Services {
		svc := &s.Services[i]
		switch {
		case svc.Mark == 0:
			all = append(all, fmt.Sprintf("%s-%s-%d", strings.ToLower(svc.Protocol), svc.VIP, svc.Port))
		case svc.IPv6:
			all = append(all, fmt.Sprintf("fwm-%d-ipv6", svc.Mark))
		default:
			all = append(all, fmt.Sprintf("fwm-%d", svc.Mark))
		}
	}
	slices.Sort(all)
	return all
}

// serviceNames lists the services of a protocol (TCP, UDP, SCTP, FWM) as ipvsadm
// takes them.
func serviceNames(s *control.Status, protocol string) (all []string) {
	for i := range s.Services {
		svc := &s.Services[i]
		switch {
		case protocol != svc.Protocol:
		case svc.Mark != 0:
			all = append(all, strconv.FormatUint(uint64(svc.Mark), 10))
		default:
			all = append(all, endpointName(svc.VIP, svc.Port))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// serverNames lists the real servers of the service of that name; "": of all.
func serverNames(s *control.Status, service string) (all []string) {
	for i := range s.Services {
		svc := &s.Services[i]
		if service != "" && service != endpointName(svc.VIP, svc.Port) && service != strconv.FormatUint(uint64(svc.Mark), 10) {
			continue
		}
		for _, d := range svc.Destinations {
			all = append(all, endpointName(d.Address, d.Port))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func endpointName(addr string, port uint16) string {
	return net.JoinHostPort(addr, strconv.Itoa(int(port)))
}

// ipvsadmServices are the options that a service follows, with its protocol.
func ipvsadmServices() map[string]string {
	return map[string]string{
		"-t": "TCP", "--tcp-service": "TCP", "-u": "UDP", "--udp-service": "UDP", "--sctp-service": "SCTP", "-f": "FWM", "--fwmark-service": "FWM",
	}
}

// completeIpvsadm completes what follows an option of ipvsadm: services, real
// servers of the service on the line, schedulers.
func completeIpvsadm(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	address, args, err := controlSocket(args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault // the socket's path is being written
	}
	if len(args) == 0 {
		return nil, none
	}
	last := args[len(args)-1]
	if protocol := ipvsadmServices()[last]; protocol != "" {
		return known(address, func(s *control.Status) []string { return serviceNames(s, protocol) }), none
	}
	switch last {
	case "-r", "--real-server":
		service := ""
		for i := range args[:len(args)-1] {
			if ipvsadmServices()[args[i]] != "" {
				service = args[i+1]
			}
		}
		return known(address, func(s *control.Status) []string { return serverNames(s, service) }), none
	case "-s", "--scheduler":
		return sched.Names(), none
	}
	return nil, none
}

// newCompletionCommand writes what shells source.
func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion {bash|zsh|fish}",
		Short: "Write what a shell needs to complete command lines",
		Long: `Completion writes a script for the shell, which completes commands, flags, files, and
services and real servers of the director that runs on the host. The Debian package
brings the scripts along.`,
		Example: `  source <(pktdirector completion bash)
  pktdirector completion zsh > "${fpath[1]}/_pktdirector"
  pktdirector completion fish > ~/.config/fish/completions/pktdirector.fish`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return usageError(fmt.Errorf("%q: one of bash, zsh and fish", args[0]))
		}),
	}
}
