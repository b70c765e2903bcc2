package nstest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives as long as the test.
type Namespace struct{ file *os.File }

// New returns a new network namespace with lo up, and nothing else in it. It
// ends the test through Require where there can be none.
func New(t testing.TB) *Namespace {
	t.Helper()
	needed := make(chan string, 1)
	var file *os.File
	err := onThread(func() error {
		if state := os.Getenv(stateEnv); state != inside {
			needed <- state
			return nil
		}
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			needed <- fmt.Sprintf("this process may not make a network namespace: %v", err)
			return nil
		}
		if err := loUp(); err != nil {
			return err
		}
		var err error
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	select {
	case missing := <-needed:
		if missing == "" {
			missing = "the package's TestMain does not call nstest.Main"
		}
		Require(t, missing)
	default:
	}
	if err != nil {
		t.Fatalf("network namespace for the test: %v", err)
	}
	t.Cleanup(func() { file.Close() })
	return &Namespace{file}
}

// FD returns the namespace's file descriptor, open until the test ends.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Do calls f on a thread inside the namespace and returns its error. What f
// opens stays in the namespace, wherever it is used; goroutines that f starts
// are not inside.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.FD(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the network namespace: %w", err)
		}
		return f()
	})
}

// onThread calls f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		defer close(done)      // also when f ends the test
		runtime.LockOSThread() // and never unlocked: the runtime ends the thread
		done <- f()
	}()
	return <-done
}
