package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/packet"
)

// machine is a host of a lab: a network, mount and UTS namespace, which live
// as long as the descriptors are open or a process is inside.
type machine struct {
	name   string
	spaces []space
}

// space is one namespace of a machine.
type space struct {
	kind int // CLONE_NEW...
	file *os.File
}

// newMachine makes a machine with nothing but lo, up. It has its own host
// name, an empty /run, and a /sys that shows its own interfaces.
func newMachine(name string) (*machine, error) {
	m := &machine{name: name}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("new namespaces: %w", err)
		}
		if err := unix.Sethostname([]byte(name)); err != nil {
			return fmt.Errorf("host name: %w", err)
		}
		if err := mountOwn("tmpfs", "/run", "sysfs", "/sys"); err != nil {
			return err
		}
		if err := (LinkUp{"lo"}).Apply(); err != nil {
			return err
		}
		return m.open()
	})
	if err != nil {
		m.close()
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	return m, nil
}

// open takes hold of the calling thread's namespaces.
func (m *machine) open() error {
	for _, s := range []struct {
		name string
		kind int
	}{{"mnt", unix.CLONE_NEWNS}, {"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}} {
		f, err := os.Open(filepath.Join("/proc/thread-self/ns", s.name))
		if err != nil {
			return err
		}
		m.spaces = append(m.spaces, space{s.kind, f})
	}
	return nil
}

// netFD returns the descriptor of the machine's network namespace.
func (m *machine) netFD() int {
	for _, s := range m.spaces {
		if s.kind == unix.CLONE_NEWNET {
			return int(s.file.Fd())
		}
	}
	return -1
}

// do calls fn on a thread that is inside the machine. Goroutines that fn
// starts are not.
func (m *machine) do(fn func() error) error {
	return onThread(func() error {
		// A thread may leave its mount namespace only when it shares its
		// working directory and root with no other thread.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("host %s: %w", m.name, err)
		}
		for _, s := range m.spaces {
			if err := unix.Setns(int(s.file.Fd()), s.kind); err != nil {
				return fmt.Errorf("host %s: entering %s: %w", m.name, s.file.Name(), err)
			}
		}
		return fn()
	})
}

// start starts cmd inside the machine. The caller waits for it.
func (m *machine) start(cmd *exec.Cmd) error {
	if cmd.Dir == "" {
		// Entering a mount namespace leads to its root.
		dir, err := os.Getwd()
		if err != nil {
			dir = "/"
		}
		cmd.Dir = dir
	}
	return m.do(func() error {
		if _, err := os.Stat(cmd.Dir); err != nil {
			cmd.Dir = "/"
		}
		return cmd.Start()
	})
}

// close lets go of the namespaces.
func (m *machine) close() {
	for _, s := range m.spaces {
		s.file.Close()
	}
	m.spaces = nil
}

// onThread calls fn on a thread of its own that ends with the call, so that fn
// may change what belongs to the thread for good.
func onThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		done <- fn()
	}()
	return <-done
}

// mountOwn mounts fresh file systems, given as pairs of kind and place, for
// the calling thread's mount namespace alone. Where something is mounted over
// parts of /proc or /sys, as in a container, the kernel refuses a fresh one
// inside a user namespace, and the old one has to do: /proc/sys/net follows the
// reader's network namespace anyway.
func mountOwn(pairs ...string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for i := 0; i < len(pairs); i += 2 {
		kind, at := pairs[i], pairs[i+1]
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
		err := unix.Mount(kind, at, kind, flags, "")
		if err != nil && !(errors.Is(err, unix.EPERM) && kind != "tmpfs") {
			return fmt.Errorf("mounting %s on %s: %w", kind, at, err)
		}
	}
	return nil
}

// ReadFacts returns the calling thread's machine's facts, those that c's role
// asks for.
func ReadFacts(c HostConfig) (Facts, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return Facts{}, fmt.Errorf("listing interfaces: %w", err)
	}
	f := Facts{NICs: map[packet.MAC]string{}}
	for _, l := range links {
		if mac := l.Attrs().HardwareAddr; len(mac) == len(packet.MAC{}) {
			f.NICs[packet.MAC(mac)] = l.Attrs().Name
		}
	}
	if c.decapsulates() {
		f.Decap = probeDecap()
	}
	return f, nil
}

// probeDecap finds the best way to unwrap IPIP on this machine.
func probeDecap() Decap {
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return AddIPIP{Dev: "probe"}.Apply()
	})
	if err == nil {
		return DecapKernel
	}
	if TundevUsable() == nil {
		return DecapTundev
	}
	return DecapVeth
}

// TundevUsable reports whether this process can make TUN devices; the error
// says what is missing and what to do.
func TundevUsable() error {
	const path = "/dev/net/tun"
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s is missing: load the kernel module tun (modprobe tun)", path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may not be opened by this user: run as root, or chmod 0666 %s as most distributions do", path, path)
	}
	return fmt.Errorf("%w: load the kernel module tun (modprobe tun)", err)
}
