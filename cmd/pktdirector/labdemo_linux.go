package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"pktdirector/testbed"
)

// demoFlags are the flags of "lab demo", which it passes on to its stages.
type demoFlags struct {
	link    testbed.LinkKind
	conns   int
	bytes   int64
	verbose bool
	// sabotage names something to break first, for the tests of the exit code.
	sabotage string
}

func (f *demoFlags) register(cmd *cobra.Command) {
	f.link = testbed.AFPacket
	cmd.Flags().Var(&f.link, "link", "what the director forwards on: afpacket or tundev")
	cmd.Flags().IntVar(&f.conns, "conns", 60, "how many connections to open and hold")
	cmd.Flags().Int64Var(&f.bytes, "bytes", 100_000_000, "size of the upload and of the download")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "print each step of building the labs")
	cmd.Flags().StringVar(&f.sabotage, "sabotage", "", "break something first: the demonstration must notice")
	cmd.Flags().MarkHidden("sabotage")
}

// check refuses values with which a demonstration would show nothing.
func (f *demoFlags) check() error {
	switch {
	case f.conns < 1:
		return usageError(fmt.Errorf("--conns %d: at least 1 connection must be opened", f.conns))
	case f.bytes < 1:
		return usageError(fmt.Errorf("--bytes %d: at least 1 byte must be sent", f.bytes))
	}
	if _, err := testbed.FindSabotage(f.sabotage); err != nil {
		return usageError(err)
	}
	return nil
}

func (f *demoFlags) args() []string {
	return []string{"--link", f.link.String(), "--conns", strconv.Itoa(f.conns),
		"--bytes", strconv.FormatInt(f.bytes, 10), "--verbose=" + strconv.FormatBool(f.verbose),
		"--sabotage", f.sabotage}
}

// newLabDemoCommand shows the labs one after another.
func newLabDemoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo [NAME...]",
		Short: "See and check NAT, DR and TUN at work, in labs of their own",
		Long: `Demo builds each lab in turn, opens connections, moves data both ways, and checks
what can be seen: how many connections each server got, hashes, the way of the
replies, resets and retransmissions. It exits with 1 when a check fails, and
leaves nothing behind, however it ends. A lab that cannot be shown here is left
out; it exits with 1 when that lab was named, or when none is left.`,
		Example: "  pktdirector lab demo\n  pktdirector lab demo nat tun --link tundev",
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			named := len(args) > 0
			if !named {
				args = testbed.Names()
			}
			var labs []*testbed.Topology
			for _, name := range args {
				t, err := testbed.Load(name)
				if err != nil {
					return usageError(err)
				}
				labs = append(labs, t)
			}
			return demonstrate(cmd, labs, &f, named)
		}),
	}
	f.register(cmd)
	return cmd
}

// demonstrate runs one stage after another, all of them even when one fails.
// That a lab which was asked for by name cannot be shown is a failure, too.
func demonstrate(cmd *cobra.Command, labs []*testbed.Topology, f *demoFlags, named bool) error {
	start := time.Now()
	var errs []error
	shown := 0
	for _, t := range labs {
		if err := f.link.Check(t); err != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "skip  %v\n\n", err)
			if named {
				errs = append(errs, fmt.Errorf("lab %s: could not be shown, see above", t.Name))
			}
			continue
		}
		shown++
		if err := runStage(cmd, t.Name, f); err != nil {
			errs = append(errs, err)
		}
		if cmd.Context().Err() != nil {
			return exitError{code: exitFailed, err: errors.New("interrupted")}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if shown == 0 {
		return errors.New("no lab could be shown, for the reasons above")
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d of %d labs shown, every check passed, in %.0f s\n", shown, len(labs), time.Since(start).Seconds())
	return nil
}

// leashFD is a pipe that ends when "lab demo" does; the stage ends with it.
const leashFD = 3

// runStage shows one lab in namespaces of its own.
func runStage(cmd *cobra.Command, name string, f *demoFlags) error {
	leash, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer hold.Close()
	stage := testbed.Sandbox(append([]string{"lab", "stage", name}, f.args()...)...)
	stage.Stdout, stage.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if out, ok := stage.Stdout.(*output); ok {
		stage.Stdout = out.file // without a pipe between
	}
	stage.ExtraFiles = []*os.File{leash}
	err = stage.Start()
	leash.Close()
	if err != nil {
		return testbed.SandboxError(err)
	}
	stop := context.AfterFunc(cmd.Context(), func() { hold.Close() })
	defer stop()
	var exit *exec.ExitError
	if err := stage.Wait(); errors.As(err, &exit) {
		return fmt.Errorf("lab %s: see above", name)
	} else if err != nil {
		return err
	}
	return nil
}

// newLabStageCommand shows one lab, as the first process of its namespaces.
func newLabStageCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:    "stage NAME",
		Short:  "Started by lab demo: show one lab",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			if err := testbed.EnterSandbox(); err != nil {
				return err
			}
			t, err := testbed.Load(args[0])
			if err != nil {
				return err
			}
			sabotage, err := testbed.FindSabotage(f.sabotage)
			if err != nil {
				return err
			}
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			leash := os.NewFile(leashFD, "leash")
			go func() { // ends with the process
				io.Copy(io.Discard, leash)
				stop()
			}()
			d := testbed.Demo{Topology: t, Out: cmd.OutOrStdout(), Conns: f.conns, Bytes: f.bytes,
				Options: testbed.Options{Link: f.link}, Sabotage: sabotage}
			if f.verbose {
				d.Options.Step = func(s testbed.Step) { fmt.Fprintln(d.Out, s) }
			}
			return d.Run(ctx)
		}),
	}
	f.register(cmd)
	return cmd
}
