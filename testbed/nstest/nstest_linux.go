package nstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stateEnv tells the process where it is: empty before Main has acted, inside
// in the namespaces, and otherwise why they could not be made.
const (
	stateEnv = "PKTDIRECTOR_NSTEST"
	inside   = "inside"
)

// Main is to be called from TestMain and does not return. It executes the test
// binary once more, with the same arguments, inside new network, mount and pid
// namespaces, and a new user namespace where it lacks the right to make the
// others. When this process dies, however it dies, the one inside dies too,
// and its namespaces with it.
//
// Where the namespaces cannot be made the tests run as they are, and Enter
// says why.
func Main(m *testing.M) {
	switch os.Getenv(stateEnv) {
	case inside:
		if err := settle(); err != nil {
			fmt.Fprintln(os.Stderr, "nstest:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	case "":
		code, err := rerun()
		if err == nil {
			os.Exit(code)
		}
		os.Setenv(stateEnv, err.Error())
	}
	os.Exit(m.Run())
}

// Enter gives the calling test a network namespace of its own, with lo up. It
// locks the goroutine to its thread for good: sockets opened by this goroutine
// belong to the namespace, those opened by other goroutines to that of the
// whole run. Where Main could not make namespaces it ends the test through
// Require.
func Enter(t testing.TB) {
	t.Helper()
	if state := os.Getenv(stateEnv); state != inside {
		if state == "" {
			state = "the package's TestMain does not call nstest.Main"
		}
		Require(t, state)
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		Require(t, fmt.Sprintf("this process may not make a network namespace: %v", err))
	}
	if err := loUp(); err != nil {
		t.Fatalf("network namespace of the test: %v", err)
	}
}

// rerun executes the test binary inside namespaces and returns its exit code.
// An error means that it did not start.
func rerun() (int, error) {
	// The death signal comes when the thread that forked ends, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd, err := start(false)
	if errors.Is(err, syscall.EPERM) {
		cmd, err = start(true)
	}
	if err != nil {
		return 0, fmt.Errorf("namespaces cannot be made here (%w): %s", err, remedy())
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "nstest: waiting for the tests inside the namespaces:", err)
		return 1, nil
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	fmt.Fprintln(os.Stderr, "nstest: the tests inside the namespaces ended by", cmd.ProcessState)
	return 1, nil
}

// start starts the test binary inside new namespaces.
func start(newUser bool) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stateEnv+"="+inside)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if newUser {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	return cmd, cmd.Start()
}

// settle makes /proc and /sys show the new namespaces and brings lo up.
func settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// A container may mask parts of /proc or /sys, and then the kernel refuses
	// a fresh mount inside a user namespace. The old ones still serve: /proc/sys/net
	// and /proc/net follow the reader's own network namespace.
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	for _, fs := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}} {
		err := unix.Mount(fs.kind, fs.at, fs.kind, flags, "")
		// EBUSY: this is a fuzzing worker, whose coordinator was here before.
		if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", fs.at, err)
		}
	}
	return loUp()
}

// loUp brings lo up in the calling thread's network namespace.
func loUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	return nil
}

// remedy says what an operator can do to let namespaces be made.
func remedy() string {
	for _, s := range []struct{ path, off, do string }{
		{"/proc/sys/user/max_user_namespaces", "0", "set sysctl user.max_user_namespaces above 0"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "set sysctl kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "set sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if b, err := os.ReadFile(s.path); err == nil && strings.TrimSpace(string(b)) == s.off {
			return s.do + ", or run as root"
		}
	}
	return "run as root, or in a container with the SYS_ADMIN and NET_ADMIN capabilities"
}
