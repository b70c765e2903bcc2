package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Claim is a director's exclusive hold on the host's network namespace: one
// director at a time guards and steers there. It remembers in a file what must
// be undone.
type Claim struct {
	lock    *os.File
	file    string
	changes []change
	routes  []netlink.Route // into a tundev; they go with it
}

// change is one setting of the host that outlives a killed process, with what
// is needed to take it back. Exactly one field is set.
type change struct {
	Sysctl *sysctlChange `json:"sysctl,omitempty"`
	Rule   *ruleChange   `json:"rule,omitempty"`
	Proxy  *proxyChange  `json:"proxy,omitempty"`
}

// sysctlChange is a file under /proc/sys/net with its values before and after.
type sysctlChange struct{ Path, Old, New string }

// ruleChange is one of the host's policy routing rules.
type ruleChange struct {
	Priority, Table int
	Interface       string       `json:",omitempty"` // packets that come in by it
	From            netip.Prefix `json:",omitzero"`
	Proto           int          `json:",omitempty"` // IP protocol number
	Port            uint16       `json:",omitempty"` // source port; 0: every port
	LastPort        uint16       `json:",omitempty"` // of a range that begins with Port
	V6              bool         `json:",omitempty"`
}

// proxyChange is an address that the host answers ARP or ND for on behalf of
// the director.
type proxyChange struct {
	Interface string
	Addr      netip.Addr
}

// TakeClaim takes the calling thread's network namespace for this process and
// removes whatever a director that was killed left in it; dir is the folder
// the state is kept in.
func TakeClaim(dir string) (*Claim, []string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, nil, fmt.Errorf("state folder: %w: run as root, or keep the control socket in a folder of your own", err)
		}
		return nil, nil, fmt.Errorf("state folder: %w", err)
	}
	base := filepath.Join(dir, "host-"+namespaceID())
	lock, err := lockFile(base + ".lock")
	if err != nil {
		return nil, nil, err
	}
	c := &Claim{lock: lock, file: base + ".json"}
	_ = lock.Truncate(0) // the pid is only for the message above
	_, _ = fmt.Fprintln(lock, os.Getpid())
	done, err := c.recover()
	if err != nil {
		return nil, done, errors.Join(err, c.Release())
	}
	return c, done, nil
}

// lockFile opens and locks the file at path, which the one who held the lock
// before may remove just then.
func lockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			pid, _ := os.ReadFile(path)
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("another director (pid %s) runs on this host: stop it first", strings.TrimSpace(string(pid)))
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		held, heldErr := f.Stat()
		there, thereErr := os.Stat(path)
		if heldErr == nil && thereErr == nil && os.SameFile(held, there) {
			return f, nil
		}
		f.Close()
	}
}

// Cleanup removes what a killed director left in the calling thread's network
// namespace and says what that was. It refuses while a director runs.
func Cleanup(dir string) ([]string, error) {
	c, done, err := TakeClaim(dir)
	if err != nil {
		return done, err
	}
	return done, c.Release()
}

// Release undoes every change, newest first, and gives the namespace free.
func (c *Claim) Release() error {
	_, err := c.undoAll()
	return errors.Join(err, os.Remove(c.lock.Name()), c.lock.Close())
}

// recover undoes what stands in the state file and in nftables.
func (c *Claim) recover() (done []string, err error) {
	found, err := removeTables()
	if found && err == nil {
		done = append(done, "removed nftables tables "+tableName)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		err = nil // a host without nftables has no tables either; missing rights show later
	}
	data, readErr := os.ReadFile(c.file)
	switch {
	case errors.Is(readErr, fs.ErrNotExist):
		return done, err
	case readErr != nil:
		return done, errors.Join(err, fmt.Errorf("state file: %w", readErr))
	}
	if jsonErr := json.Unmarshal(data, &c.changes); jsonErr != nil {
		return done, errors.Join(err, fmt.Errorf("state file %s: %w: look what it says, undo it and remove the file", c.file, jsonErr))
	}
	undone, undoErr := c.undoAll()
	return append(done, undone...), errors.Join(err, undoErr)
}

// undoAll takes all changes back and removes the state file.
func (c *Claim) undoAll() (done []string, err error) {
	for i := len(c.changes) - 1; i >= 0; i-- {
		said, e := c.changes[i].undo()
		err = errors.Join(err, e)
		if said != "" {
			done = append(done, said)
		}
	}
	c.changes = nil
	if e := os.Remove(c.file); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return done, err
}

// make writes the change down, then makes it.
func (c *Claim) make(ch change) error {
	c.changes = append(c.changes, ch)
	data, err := json.MarshalIndent(c.changes, "", " ")
	if err != nil {
		return err
	}
	// A new file moved into place: a kill in between leaves a whole one.
	if err := os.WriteFile(c.file+".new", data, 0o600); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return ch.do()
}

// sysctl sets a value below /proc/sys/net unless it is there already.
func (c *Claim) sysctl(name, value string) error {
	path := "/proc/sys/net/" + name
	old, err := readSysctl(path)
	if err != nil {
		return err
	}
	if old == value {
		return nil
	}
	return c.make(change{Sysctl: &sysctlChange{path, old, value}})
}

func readSysctl(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("sysctl: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (ch change) do() error {
	switch {
	case ch.Sysctl != nil:
		if err := os.WriteFile(ch.Sysctl.Path, []byte(ch.Sysctl.New), 0o644); err != nil {
			return fmt.Errorf("sysctl: %w", err)
		}
	case ch.Rule != nil:
		if err := netlink.RuleAdd(ch.Rule.rule()); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("ip rule %d: %w", ch.Rule.Priority, err)
		}
	case ch.Proxy != nil:
		n, err := ch.Proxy.neighbour()
		if err == nil {
			err = netlink.NeighSet(n)
		}
		if err != nil {
			return fmt.Errorf("answering for %s on %s: %w", ch.Proxy.Addr, ch.Proxy.Interface, err)
		}
	}
	return nil
}

// undo takes the change back unless it is gone already or somebody has changed
// the same thing since. It says what it did, or nothing.
func (ch change) undo() (string, error) {
	switch {
	case ch.Sysctl != nil:
		s := ch.Sysctl
		now, err := readSysctl(s.Path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && now != s.New {
			return "", nil
		}
		if err == nil {
			err = os.WriteFile(s.Path, []byte(s.Old), 0o644)
		}
		if err != nil {
			return "", fmt.Errorf("sysctl: %w", err)
		}
		return fmt.Sprintf("set %s back to %s", s.Path, s.Old), nil
	case ch.Rule != nil:
		err := netlink.RuleDel(ch.Rule.rule())
		switch {
		case errors.Is(err, unix.ENOENT):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("ip rule %d: %w", ch.Rule.Priority, err)
		}
		return fmt.Sprintf("removed ip rule %d", ch.Rule.Priority), nil
	case ch.Proxy != nil:
		n, err := ch.Proxy.neighbour()
		if err == nil {
			err = netlink.NeighDel(n)
		}
		var gone netlink.LinkNotFoundError
		switch {
		case errors.As(err, &gone), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("answering for %s on %s: %w", ch.Proxy.Addr, ch.Proxy.Interface, err)
		}
		return fmt.Sprintf("stopped answering for %s on %s", ch.Proxy.Addr, ch.Proxy.Interface), nil
	}
	return "", nil
}

func (r *ruleChange) rule() *netlink.Rule {
	rule := netlink.NewRule()
	rule.Priority, rule.Table, rule.IifName = r.Priority, r.Table, r.Interface
	rule.Family = netlink.FAMILY_V4
	if r.V6 {
		rule.Family = netlink.FAMILY_V6
	}
	if r.From.IsValid() {
		rule.Src = ipNetOf(r.From)
	}
	rule.IPProto = r.Proto
	if r.Port != 0 {
		rule.Sport = netlink.NewRulePortRange(r.Port, max(r.Port, r.LastPort))
	}
	return rule
}

func (p *proxyChange) neighbour() (*netlink.Neigh, error) {
	l, err := netlink.LinkByName(p.Interface)
	if err != nil {
		return nil, err
	}
	family := netlink.FAMILY_V4
	if p.Addr.Is6() {
		family = netlink.FAMILY_V6
	}
	return &netlink.Neigh{LinkIndex: l.Attrs().Index, Family: family, Flags: netlink.NTF_PROXY, IP: p.Addr.AsSlice()}, nil
}

func ipNetOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// namespaceID names the calling thread's network namespace: by its cookie,
// which is never used twice while the machine runs (Linux 5.14), else by its
// inode number.
func namespaceID() string {
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		defer unix.Close(fd)
		if cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err == nil {
			return fmt.Sprintf("net%d", cookie)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err == nil {
		return fmt.Sprintf("inode%d", st.Ino)
	}
	return "unknown"
}
