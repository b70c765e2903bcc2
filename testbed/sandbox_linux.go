package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Self is the running program's own file, whatever became of its path.
const Self = "/proc/self/exe"

// Sandbox prepares this program to be started again, with args, as the first
// process of new network, mount, UTS and pid namespaces, and of a new user namespace
// unless this process may make the others without. When that process ends, everything in them
// ends too. The new process calls EnterSandbox first.
func Sandbox(args ...string) *exec.Cmd {
	cmd := exec.Command(Self, args...)
	cmd.Args[0] = os.Args[0]
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
	}
	if !privileged() {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	return cmd
}

// privileged reports whether this process is a root that may make namespaces;
// in a container it may be a root that may not.
func privileged() bool {
	var caps [2]unix.CapUserData
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return os.Geteuid() == 0 && unix.Capget(&head, &caps[0]) == nil &&
		caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// EnterSandbox makes /proc show the pid namespace that this process is the
// first of, and refuses to act anywhere else.
func EnterSandbox() error {
	if os.Getpid() != 1 {
		return errors.New("this command is started by the program itself, in namespaces of its own: run lab up or lab demo")
	}
	if err := mountOwn("proc", "/proc"); err != nil {
		return SandboxError(err)
	}
	return nil
}

// SandboxError explains why a Sandbox did not start: what is missing and what
// to do.
func SandboxError(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("starting in namespaces: %w", err)
	}
	for _, s := range []struct{ path, off, do string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if b, readErr := os.ReadFile(s.path); readErr == nil && strings.TrimSpace(string(b)) == s.off {
			return fmt.Errorf("namespaces are forbidden here (%w), because %s is %s: let root do %q, or run as root", err, s.path, s.off, s.do)
		}
	}
	return fmt.Errorf("namespaces are forbidden here (%w): run as root, or in a container with the SYS_ADMIN and NET_ADMIN capabilities", err)
}
