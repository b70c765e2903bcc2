package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"pktdirector/testbed"
)

// File descriptors that "lab up" gives its keeper.
const (
	keeperSocketFD   = 3
	keeperProgressFD = 4
)

// newLabInitCommand is the first process of a lab's namespaces.
func newLabInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "init -- ARGUMENT...",
		Short:  "Started by lab up: be the first process of a lab",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: failing(func(_ *cobra.Command, args []string) error {
			files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
			for _, fd := range []int{keeperSocketFD, keeperProgressFD} {
				files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d", fd)))
			}
			code, err := testbed.Init(args, files)
			if err != nil {
				json.NewEncoder(files[keeperProgressFD]).Encode(testbed.Progress{Error: err.Error()})
				return err
			}
			if code != 0 {
				return exitError{code: code}
			}
			return nil
		}),
	}
}

// newLabKeepCommand keeps a lab up.
func newLabKeepCommand() *cobra.Command {
	link := testbed.AFPacket
	cmd := &cobra.Command{
		Use:    "keep NAME",
		Short:  "Started by lab up: build a lab and keep it",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			progress := os.NewFile(keeperProgressFD, "progress pipe")
			tell := json.NewEncoder(progress)
			lab, calls, err := startKeeper(cmd, args[0], link, tell)
			if err != nil {
				tell.Encode(testbed.Progress{Error: err.Error()})
				return err
			}
			tell.Encode(testbed.Progress{Ready: true})
			progress.Close()
			return testbed.NewKeeper(lab).Run(cmd.Context(), calls)
		}),
	}
	cmd.Flags().Var(&link, "link", "what the director forwards on")
	return cmd
}

func startKeeper(cmd *cobra.Command, name string, link testbed.LinkKind, tell *json.Encoder) (*testbed.Lab, net.Listener, error) {
	// Whoever listened last is whom callers see as the socket's owner.
	if err := unix.Listen(keeperSocketFD, unix.SOMAXCONN); err != nil {
		return nil, nil, fmt.Errorf("descriptor %d is no listening socket (%w): run lab up", keeperSocketFD, err)
	}
	socket := os.NewFile(keeperSocketFD, "keeper's socket")
	defer socket.Close()
	calls, err := net.FileListener(socket)
	if err != nil {
		return nil, nil, err
	}
	t, err := testbed.Load(name)
	if err != nil {
		return nil, nil, err
	}
	lab, err := testbed.Build(t, testbed.Options{Link: link,
		Step: func(s testbed.Step) { tell.Encode(testbed.Progress{Step: &s}) }})
	if err != nil {
		return nil, nil, err
	}
	err = lab.StartServers(cmd.Context())
	if err == nil {
		_, err = lab.StartDirector(cmd.Context())
	}
	if err != nil {
		return nil, nil, errors.Join(err, lab.Close())
	}
	return lab, calls, nil
}

// terminalLog returns the log of a command that people read: text.
func terminalLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
