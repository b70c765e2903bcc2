package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long a lab waits for a process: to say that it is ready, and to end
// after it was asked to.
const (
	readyTimeout = 10 * time.Second
	stopTimeout  = 5 * time.Second
	// and for the end of its output, which a successor of a director that was upgraded
	// has as well.
	outputTimeout = time.Second
)

// Process is a program that runs on a host of a lab.
type Process struct {
	Host string
	Args []string
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{} // closed when the process has ended
	err  error         // of Wait; read after done
}

// PID returns the process's id as the lab's processes see it.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log returns the last lines that the process wrote.
func (p *Process) Log() string { return p.log.String() }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Stop asks the process to end, and makes it end when it does not within some
// seconds. The error tells that it did not end well by itself.
func (p *Process) Stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s: did not end within %v of SIGTERM", p, stopTimeout)
	}
	if p.err != nil {
		return fmt.Errorf("%s: ended with %w\n%s", p, p.err, p.Log())
	}
	return nil
}

// Kill ends the process at once, as a crash would.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// String names the process and its host.
func (p *Process) String() string {
	return fmt.Sprintf("%s# pktdirector %s", p.Host, strings.Join(p.Args, " "))
}

// waitReady waits until the process has written a line with the word ready.
func (p *Process) waitReady(ctx context.Context) error {
	select {
	case <-p.log.ready:
		return nil
	case <-p.done:
		return fmt.Errorf("%s: ended before it was ready: %v\n%s", p, p.cmd.ProcessState, p.Log())
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(readyTimeout):
		return fmt.Errorf("%s: not ready within %v\n%s", p, readyTimeout, p.Log())
	}
}

// logBuffer keeps the end of what a process writes and notices when it says
// that it is ready.
type logBuffer struct {
	mu    sync.Mutex
	tail  []byte
	ready chan struct{}
	once  sync.Once
}

// logKept is how many bytes of a process's output are kept.
const logKept = 16 << 10

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tail = append(b.tail, p...)
	if saysReady(b.tail) {
		b.once.Do(func() { close(b.ready) })
	}
	if over := len(b.tail) - logKept; over > 0 {
		b.tail = append(b.tail[:0], b.tail[over:]...)
	}
	return len(p), nil
}

// saysReady looks for a log record whose message is "ready", as text and as
// JSON.
func saysReady(log []byte) bool {
	return bytes.Contains(log, []byte(`msg=ready`)) || bytes.Contains(log, []byte(`"msg":"ready"`))
}

// String returns what is kept.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.tail)
}
