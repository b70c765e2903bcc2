package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// ipvsadmName is what the program may be called, too: it is ipvsadm then.
const ipvsadmName = "ipvsadm"

// newIpvsadmCommand speaks ipvsadm's language.
func newIpvsadmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   ipvsadmName + " [--control SOCKET] COMMAND...",
		Short: "Change and list a running director with the command lines of ipvsadm",
		Long: `Ipvsadm takes the command lines of ipvsadm 1.31, prints what it prints and ends with
its exit codes. A link to pktdirector that is called ipvsadm is the same. The
director's socket is the default one unless --control, in front of all else, or the
environment variable PKTDIRECTOR_CONTROL names another, or https://host:port with
PKTDIRECTOR_CA, PKTDIRECTOR_CERT and PKTDIRECTOR_KEY, or PKTDIRECTOR_TOKEN_FILE.`,
		Example: `  pktdirector ipvsadm -A -t 192.0.2.10:80 -s wlc
  pktdirector ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.1:8080 -m
  pktdirector ipvsadm -Ln --stats
  pktdirector ipvsadm -Sn > rules; pktdirector ipvsadm -R < rules`,
		DisableFlagParsing: true,
		ValidArgsFunction:  completeIpvsadm,
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			socket, args, err := controlSocket(args)
			if err != nil {
				return err
			}
			line := control.Line{Args: args}
			first := ""
			if len(args) > 0 {
				first = args[0]
			}
			switch {
			case first == "-h" || first == "--help" || first == "-v" || first == "--version":
				return printAnswer(cmd, (&control.Commander{}).Do(args, ""))
			case strings.HasPrefix(first, "-R") || first == "--restore":
				text, err := io.ReadAll(cmd.InOrStdin())
				if err != nil {
					return fmt.Errorf("standard input: %w", err)
				}
				line.Stdin = string(text)
			}
			client, err := (&remote{control.Remote{Address: socket}}).client()
			if err != nil {
				return err
			}
			if line.Lists() {
				if done, err := listAsIpvsadm(cmd, client, args); done {
					return err
				}
			}
			answer, err := client.Ipvsadm(cmd.Context(), line)
			if err != nil {
				return err
			}
			return printAnswer(cmd, answer)
		}),
	}
}

// listAsIpvsadm lists connections as they come, where the command line says that and
// nothing is wrong with it: there may be millions.
func listAsIpvsadm(cmd *cobra.Command, client *control.Client, args []string) (done bool, err error) {
	names, cancel := systemNames(cmd.Context())
	defer cancel()
	c, err := control.ParseCommand(args, names)
	if err != nil || c.Op != 'L' || !c.List.Connections {
		return false, nil // the director says what is wrong
	}
	conns := client.SelectConnections(cmd.Context(), control.ConnQuery{})
	return true, buffered(cmd.OutOrStdout(), func(w io.Writer) error { return c.ListConnections(w, conns, names) })
}

// controlSocket takes the socket's path off the command line.
func controlSocket(args []string) (socket string, rest []string, err error) {
	switch {
	case len(args) > 0 && strings.HasPrefix(args[0], "--control="):
		return strings.TrimPrefix(args[0], "--control="), args[1:], nil
	case len(args) > 1 && args[0] == "--control":
		return args[1], args[2:], nil
	case len(args) == 1 && args[0] == "--control":
		return "", nil, usageError(errors.New("--control needs the path of the director's socket"))
	}
	return socket, args, nil
}

// printAnswer prints what ipvsadm would have, and ends as it would.
func printAnswer(cmd *cobra.Command, a control.Answer) error {
	if _, err := io.WriteString(cmd.OutOrStdout(), a.Stdout); err != nil {
		return err
	}
	if _, err := io.WriteString(cmd.ErrOrStderr(), a.Stderr); err != nil {
		return err
	}
	if a.Code != 0 {
		return exitError{code: a.Code}
	}
	return nil
}
