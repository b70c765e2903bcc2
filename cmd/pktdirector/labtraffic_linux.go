package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"pktdirector/testbed"
	"pktdirector/testbed/endpoint"
	"pktdirector/testbed/traffic"
)

// newLabServeCommand is a real server.
func newLabServeCommand() *cobra.Command {
	var name, http, echo string
	cmd := &cobra.Command{
		Use:   "serve --name NAME",
		Short: "Be a real server: HTTP that says its name, hashes uploads and streams downloads; UDP echo",
		Long: `Serve answers
  GET  /                         the server's name
  PUT  /upload                   JSON: server, bytes, sha256
  GET  /download?bytes=N&seed=S  a stream that follows from the seed; trailer X-Sha256
and each UDP datagram with "NAME: " in front of it.`,
		Example: "  pktdirector lab serve --name rs1 --http :8080 --echo :7",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			log := terminalLog(cmd.ErrOrStderr())
			s, err := traffic.Listen(name, http, echo, log)
			if err != nil {
				return err
			}
			log.Info("ready", "server", name, "http", http, "echo", echo)
			return s.Serve(cmd.Context())
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "the server's name, as it gives it")
	cmd.Flags().StringVar(&http, "http", ":80", "address of the HTTP server")
	cmd.Flags().StringVar(&echo, "echo", "", "address of the UDP echo; empty: none")
	cmd.MarkFlagRequired("name")
	return cmd
}

// newLabEndpointCommand is the far end of a tunnel.
func newLabEndpointCommand() *cobra.Command {
	var nic, decap string
	var guePort uint16
	cmd := &cobra.Command{
		Use:     "endpoint --nic NIC",
		Short:   "Unwrap a tunnel's packets on a real server whose kernel cannot",
		Example: "  pktdirector lab endpoint --nic eth0",
		Long: `Endpoint takes packets of tunnels (IP in IP, GRE, GUE) that arrive on an interface
over IPv4 or IPv6, unwraps them, and gives them to the kernel through the device
tunl0, which "lab role" has made.`,
		Args: cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			log := terminalLog(cmd.ErrOrStderr())
			c := endpoint.Config{NIC: nic, Device: testbed.DecapDevice, GUEPort: guePort, Log: log}
			switch testbed.Decap(decap) {
			case testbed.DecapTundev:
			case testbed.DecapVeth:
				c.Feed = testbed.DecapFeed
			default:
				return usageError(fmt.Errorf("--decap %q is not known: %s or %s is", decap, testbed.DecapTundev, testbed.DecapVeth))
			}
			e, err := endpoint.Open(c)
			if err != nil {
				return err
			}
			log.Info("ready", "nic", nic, "device", c.Device, "decap", decap)
			return e.Run(cmd.Context())
		}),
	}
	cmd.Flags().StringVar(&nic, "nic", "", "interface where tunnelled packets arrive")
	cmd.Flags().StringVar(&decap, "decap", string(testbed.DecapTundev), "what tunl0 is: tundev or veth")
	cmd.Flags().Uint16Var(&guePort, "gue-port", endpoint.GUEPort, "UDP port of GUE")
	cmd.MarkFlagRequired("nic")
	return cmd
}

// newLabClientCommand joins what a client does.
func newLabClientCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "client",
		Short: "Ask a virtual service of a lab, and print JSON",
		Example: `  pktdirector lab client open 192.0.2.80:80 -n 60
  pktdirector lab client upload 192.0.2.80:80 --bytes 100000000 --parallel 4
  pktdirector lab client echo 192.0.2.80:7 -n 12`,
	}
	group(cmd)
	var timeout time.Duration
	cmd.PersistentFlags().DurationVar(&timeout, "timeout", 5*time.Second, "for a connection or an answer")
	to := func(target string) traffic.Client { return traffic.Client{Target: target, Timeout: timeout} }
	cmd.AddCommand(newLabOpenCommand(to), newLabEchoCommand(to), newLabTransferCommand("upload", to), newLabTransferCommand("download", to))
	return cmd
}

// opened is what "lab client open" and "lab client echo" print.
type opened struct {
	Servers map[string]int `json:"servers"` // connections or answers by server
	Error   string         `json:"error,omitempty"`
}

func newLabOpenCommand(to func(string) traffic.Client) *cobra.Command {
	var n int
	var hold bool
	cmd := &cobra.Command{
		Use:     "open VIP:PORT",
		Short:   "Open connections one after another and count them by server",
		Example: "  pktdirector lab client open 192.0.2.80:80 -n 60",
		Args:    cobra.ExactArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			conns, err := to(args[0]).Open(cmd.Context(), n)
			// With an error, too: those before the one that failed are open.
			defer func() { conns.Close() }()
			if err := printJSON(cmd, opened{conns.Server, errorText(err)}); err != nil {
				return err
			}
			if hold && err == nil {
				io.Copy(io.Discard, cmd.InOrStdin())
			}
			return err
		}),
	}
	cmd.Flags().IntVarP(&n, "number", "n", 6, "how many connections")
	cmd.Flags().BoolVar(&hold, "hold", false, "keep them open until standard input ends")
	return cmd
}

func newLabEchoCommand(to func(string) traffic.Client) *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:     "echo VIP:PORT",
		Short:   "Send UDP datagrams and count the answers by server",
		Example: "  pktdirector lab client echo 192.0.2.80:7 -n 12",
		Args:    cobra.ExactArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			servers, err := to(args[0]).Echo(cmd.Context(), n)
			return errors.Join(err, printJSON(cmd, opened{servers, errorText(err)}))
		}),
	}
	cmd.Flags().IntVarP(&n, "number", "n", 6, "how many datagrams, each from a port of its own")
	return cmd
}

func newLabTransferCommand(kind string, to func(string) traffic.Client) *cobra.Command {
	var size int64
	var seed uint64
	var parallel int
	cmd := &cobra.Command{
		Use:     kind + " VIP:PORT",
		Short:   fmt.Sprintf("Make %ss and compare the SHA-256 of both ends", kind),
		Example: "  pktdirector lab client " + kind + " 192.0.2.80:80 --bytes 100000000 --parallel 4",
		Args:    cobra.ExactArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			c := to(args[0])
			all, err := traffic.Parallel(parallel, func(i int) (traffic.Transfer, error) {
				if kind == "upload" {
					return c.Upload(cmd.Context(), seed+uint64(i), size)
				}
				return c.Download(cmd.Context(), seed+uint64(i), size)
			})
			if err := printJSON(cmd, all); err != nil {
				return err
			}
			for _, t := range all {
				if !t.Equal(size) {
					err = errors.Join(err, fmt.Errorf("%s through %s: %d bytes with SHA-256 %s arrived, %d with %s were sent", kind, t.Server, t.Bytes, t.Arrived, size, t.Sent))
				}
			}
			return err
		}),
	}
	cmd.Flags().Int64Var(&size, "bytes", 100_000_000, "size of each")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "what the bytes follow from")
	cmd.Flags().IntVar(&parallel, "parallel", 1, "how many at once")
	return cmd
}

func printJSON(cmd *cobra.Command, v any) error {
	return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
}
