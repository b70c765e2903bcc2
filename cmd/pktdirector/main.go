// Command pktdirector is a Linux Virtual Server director in user space: it
// balances TCP, UDP and SCTP over real servers by NAT, direct routing, tunnelling
// or FullNAT.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes that every command keeps to.
const (
	exitFailed = 1 // the command could not do its work, or found something wrong
	exitUsage  = 2 // the command line makes no sense
)

func main() { os.Exit(execute(commandLine(os.Args))) }

// commandLine is what the program is to do: as ipvsadm does when it is called by
// that name.
func commandLine(args []string) []string {
	if len(args) > 0 && filepath.Base(args[0]) == ipvsadmName {
		return append([]string{ipvsadmName}, args[1:]...)
	}
	return args[min(1, len(args)):]
}

// execute runs one command line and returns the process's exit code. SIGINT
// and SIGTERM end the command's context; a second one ends the program.
func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root := newRootCommand()
	root.SetArgs(args)
	out := &output{file: os.Stdout}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil && out.err != nil:
		err = exitError{code: exitFailed, err: fmt.Errorf("standard output: %w", out.err)}
	case err == nil:
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = exitError{code: exitFailed, err: errors.New("interrupted")}
	}
	var code exitError
	if !errors.As(err, &code) {
		// What cobra itself refuses (unknown command, wrong arguments) has
		// no code of ours.
		code = exitError{code: exitUsage, err: err}
	}
	if code.err != nil {
		fmt.Fprintln(root.ErrOrStderr(), "pktdirector:", code.err)
	}
	return code.code
}

// output is standard output. It remembers the first write that failed, so that
// a full disk is not taken for success.
type output struct {
	file *os.File
	err  error
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// exitError is an error with the exit code it leads to. A nil err says that
// the command has printed what there is to say.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// runFunc is the body of a command.
type runFunc func(cmd *cobra.Command, args []string) error

// failing wraps a command's body: an error without an exit code of its own
// means exit code 1.
func failing(run runFunc) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		var code exitError
		if err == nil || errors.As(err, &code) {
			return err
		}
		return exitError{code: exitFailed, err: err}
	}
}

// usageError marks an error as one of the command line.
func usageError(err error) error { return exitError{code: exitUsage, err: err} }

// errorText is an error's message for JSON; empty without one.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
