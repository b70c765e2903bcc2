package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

// newTerminal returns the two ends of a pseudo terminal.
func newTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		nstest.Require(t, fmt.Sprintf("there are no pseudo terminals here: %v", err))
	}
	t.Cleanup(func() { master.Close() })
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if e := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}); e != nil || err != nil {
		t.Fatal(e, err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		nstest.Require(t, fmt.Sprintf("there are no pseudo terminals here: %v", err))
	}
	t.Cleanup(func() { terminal.Close() })
	return master, terminal
}

// A director whose terminal closes stops; until then SIGHUP has it load its file
// again, as any.
func TestTheTerminalThatCloses(t *testing.T) {
	top := topology(t, "dr")
	l := lab(t, top, testbed.AFPacket, func(*testbed.Lab) bool { return false })
	host := top.With(testbed.Director)[0].Name
	file := filepath.Join(t.TempDir(), "director.yaml")
	if err := os.WriteFile(file, []byte(top.DirectorYAML(testbed.AFPacket)), 0o644); err != nil {
		t.Fatal(err)
	}
	master, terminal := newTerminal(t)
	log, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	program(t)
	cmd := exec.Command(executable(t), "run", "-c", file)
	cmd.Stderr, cmd.ExtraFiles = stderr, []*os.File{terminal}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	err = l.Start(host, cmd)
	stderr.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	terminal.Close()
	lines := bufio.NewScanner(log)
	until := func(word string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"msg":"`+word) {
				return
			}
		}
		t.Fatalf("the log ended without %q", word)
	}
	until("ready")
	cmd.Process.Signal(syscall.SIGHUP)
	until("reloaded")
	master.Close() // the kernel tells the director by SIGHUP
	until("the terminal is gone")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it runs on")
	}
}
