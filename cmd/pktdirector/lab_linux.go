package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"pktdirector/testbed"
)

// newLabCommand joins the commands of the lab.
func newLabCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Labs in network namespaces: see and try a director at work",
		Long: `A lab is a director, three real servers, a client and what routers they need,
each a network namespace of this machine, joined by bridges. Labs need root, or
a kernel that lets ordinary users make user namespaces, and leave nothing behind.`,
		Example: `  pktdirector lab demo                             all labs, one after another
  pktdirector lab up dr                            build one and keep it
  pktdirector lab exec dr client -- curl -s 192.0.2.80
  pktdirector lab exec dr director -- pktdirector list
  pktdirector lab down`,
	}
	group(cmd)
	cmd.AddCommand(newLabListCommand(), newLabUpCommand(), newLabExecCommand(), newLabStatusCommand(),
		newLabDownCommand(), newLabDemoCommand(), newLabRoleCommand(), newLabServeCommand(),
		newLabClientCommand(), newLabEndpointCommand(), newLabInitCommand(), newLabKeepCommand(),
		newLabStageCommand())
	return cmd
}

func newLabListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the labs there are, and whether they are up",
		Example: "  pktdirector lab list",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			up, err := testbed.Up()
			if err != nil {
				return err
			}
			for _, name := range testbed.Names() {
				t, err := testbed.Load(name)
				if err != nil {
					return err
				}
				state := ""
				if slices.ContainsFunc(up, func(s *testbed.Standing) bool { return s.Name == name }) {
					state = "up"
				}
				line := fmt.Sprintf("%-11s %-34s VIP %-14s %s", t.Name, t.Title, t.VIP, state)
				fmt.Fprintln(cmd.OutOrStdout(), strings.TrimRight(line, " "))
			}
			return nil
		}),
	}
}

func newLabUpCommand() *cobra.Command {
	link := testbed.AFPacket
	cmd := &cobra.Command{
		Use:   "up NAME",
		Short: "Build a lab, start its director and servers, and keep it",
		Long: `Up prints each step as the command that a person would type; it runs none of
them, but does the same through netlink and /proc.`,
		Example: "  pktdirector lab up nat\n  pktdirector lab up tun --link tundev",
		Args:    cobra.ExactArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			s, err := testbed.Find(args[0])
			if err != nil {
				return usageError(err)
			}
			out := cmd.OutOrStdout()
			keep := []string{"lab", "keep", args[0], "--link", link.String()}
			if err := s.Start(cmd.Context(), keep, func(step testbed.Step) { fmt.Fprintln(out, step) }); err != nil {
				return err
			}
			fmt.Fprintf(out, "lab %s is up: try \"pktdirector lab status\" and \"pktdirector lab exec %[1]s client -- ...\"\n", s.Name)
			return nil
		}),
	}
	cmd.Flags().Var(&link, "link", "what the director forwards on: afpacket or tundev")
	return cmd
}

func newLabExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NAME HOST [--] COMMAND [ARGUMENT...]",
		Short: "Run a command on a host of a lab that is up",
		Long: `Exec runs the command with this command's standard input, output and error,
environment and working directory, finds it in your PATH, and ends with its exit
code. Signals are passed on.

The command has no controlling terminal: a shell works, but without job control,
and programs that open /dev/tty, to ask for a password or to draw a screen, do not.`,
		Example: "  pktdirector lab exec nat rs1 -- ip addr\n  pktdirector lab exec dr director -- pktdirector list",
		Args:    cobra.MinimumNArgs(3),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			s, err := testbed.Find(args[0])
			if err != nil {
				return usageError(err)
			}
			signals := make(chan os.Signal, 8)
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
			defer signal.Stop(signals)
			command := args[2:]
			if command[0] == "--" {
				command = command[1:]
			}
			if len(command) == 0 {
				return usageError(errors.New("the command is missing"))
			}
			code, err := s.Exec(args[1], command, signals)
			if err != nil || code == 0 {
				return err
			}
			return exitError{code: code}
		}),
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newLabStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status [NAME...]",
		Short:   "Tell how the labs that are up stand",
		Example: "  pktdirector lab status\n  pktdirector lab status nat --json",
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			labs, err := standing(args)
			if err != nil {
				return err
			}
			all := []*testbed.Status{}
			for _, s := range labs {
				st, err := s.Status()
				if len(args) == 0 && errors.Is(err, testbed.ErrNotUp) {
					continue // it went down meanwhile
				}
				if err != nil {
					return err
				}
				all = append(all, st)
			}
			return printStatus(cmd.OutOrStdout(), all, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printStatus(w io.Writer, all []*testbed.Status, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no lab is up")
		return err
	}
	for _, st := range all {
		if err := st.Write(w); err != nil {
			return err
		}
	}
	return nil
}

func newLabDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "down [NAME...]",
		Short:   "Take labs down: those named, or all that are up",
		Example: "  pktdirector lab down nat\n  pktdirector lab down",
		Long:    `Down returns when nothing of the labs is left. A lab that is not up is no error.`,
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			labs, err := standing(args)
			if err != nil {
				return err
			}
			var errs []error
			for _, s := range labs {
				switch err := s.Down(); {
				case errors.Is(err, testbed.ErrNotUp):
					fmt.Fprintf(cmd.OutOrStdout(), "lab %s is not up\n", s.Name)
				case err != nil:
					errs = append(errs, err)
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "lab %s is down\n", s.Name)
				}
			}
			return errors.Join(errs...)
		}),
	}
}

// standing returns the labs of those names, or all that are up.
func standing(names []string) ([]*testbed.Standing, error) {
	if len(names) == 0 {
		return testbed.Up()
	}
	var labs []*testbed.Standing
	for _, name := range names {
		s, err := testbed.Find(name)
		if err != nil {
			return nil, usageError(err)
		}
		labs = append(labs, s)
	}
	return labs, nil
}
