package testbed

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Init is the first process of a Sandbox in which people run commands of
// their own: it starts the program again with args and the given files, and
// waits for whatever the kernel hands the first process to wait for. It
// returns the exit code once the program has ended; everything else in the
// sandbox ends with the caller.
func Init(args []string, files []*os.File) (code int, err error) {
	if err := EnterSandbox(); err != nil {
		return 0, err
	}
	p, err := os.StartProcess(Self, append([]string{os.Args[0]}, args...), &os.ProcAttr{Files: files})
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		f.Close()
	}
	// The kernel shields a first process from signals that it does not handle.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	go func() { // ends with the process
		for s := range signals {
			unix.Kill(p.Pid, s.(syscall.Signal))
		}
	}()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case pid == p.Pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case pid == p.Pid:
			return ws.ExitStatus(), nil
		}
	}
}
