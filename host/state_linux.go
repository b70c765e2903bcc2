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
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Claim is a director's exclusive hold on the host's network namespace: one
// director at a time guards and steers there. It remembers in a file what must
// be undone.
type Claim struct {
	lock *os.File
	file string

	mu      sync.Mutex // guards what follows
	changes []change
	routes  []netlink.Route     // into a tundev; they go with it
	steered map[string]steering // by tundev
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
	c.mu.Lock()
	defer c.mu.Unlock()
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
	var parseErr error
	if c.changes, parseErr = parseChanges(data); parseErr != nil {
		return done, errors.Join(err, fmt.Errorf("state file %s: %w: look what it says, undo it and remove the file", c.file, parseErr))
	}
	undone, undoErr := c.undoAll()
	return append(done, undone...), errors.Join(err, undoErr)
}

// parseChanges reads a state file. It refuses what no director writes: undoing
// it would change something else.
func parseChanges(data []byte) ([]change, error) {
	var list []change
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for i, ch := range list {
		kinds := 0
		for _, there := range []bool{ch.Sysctl != nil, ch.Rule != nil, ch.Proxy != nil} {
			if there {
				kinds++
			}
		}
		switch {
		case kinds != 1:
			return nil, fmt.Errorf("change %d: is %d changes, must be one", i, kinds)
		case ch.Sysctl != nil && (!strings.HasPrefix(ch.Sysctl.Path, sysctlFolder) || filepath.Clean(ch.Sysctl.Path) != ch.Sysctl.Path):
			return nil, fmt.Errorf("change %d: %q is no setting of the network: it must stand in %s", i, ch.Sysctl.Path, sysctlFolder)
		case ch.Proxy != nil && !ch.Proxy.Addr.IsValid():
			return nil, fmt.Errorf("change %d: the address that was answered for is missing", i)
		}
	}
	return list, nil
}

// sysctlFolder holds the settings that a director may change.
const sysctlFolder = "/proc/sys/net/"

// undoAll takes all changes back and removes the state file.
func (c *Claim) undoAll() (done []string, err error) {
	done, err = undo(c.changes)
	c.changes = nil
	if e := os.Remove(c.file); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return done, err
}

// undo takes changes back, newest first, and says what it did.
func undo(changes []change) (done []string, err error) {
	for _, ch := range slices.Backward(changes) {
		said, e := ch.undo()
		err = errors.Join(err, e)
		if said != "" {
			done = append(done, said)
		}
	}
	return done, err
}

// make writes changes down, then makes them: all, or, with an error, none.
func (c *Claim) make(changes ...change) error {
	if len(changes) == 0 {
		return nil
	}
	c.changes = append(c.changes, changes...)
	if err := c.save(); err != nil {
		return errors.Join(err, c.forget(changes))
	}
	for i, ch := range changes {
		if err := ch.do(); err != nil {
			_, undone := undo(changes[:i])
			return errors.Join(err, undone, c.forget(changes))
		}
	}
	return nil
}

// unmake takes changes back, then forgets them.
func (c *Claim) unmake(changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	_, err := undo(changes)
	return errors.Join(err, c.forget(changes))
}

// forget strikes changes off the state file.
func (c *Claim) forget(changes []change) error {
	gone := map[changeKey]bool{}
	for _, ch := range changes {
		gone[ch.key()] = true
	}
	c.changes = slices.DeleteFunc(c.changes, func(ch change) bool { return gone[ch.key()] })
	return c.save()
}

// save writes the changes into the state file: a new one moved into place, so
// that a kill in between leaves a whole one.
func (c *Claim) save() error {
	data, err := json.MarshalIndent(c.changes, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file+".new", data, 0o600); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}

// sysctl sets a value below /proc/sys/net unless it is there already.
func (c *Claim) sysctl(name, value string) error {
	path := sysctlFolder + name
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

// changeKey is a change as a value, to compare.
type changeKey struct {
	sysctl sysctlChange
	rule   ruleChange
	proxy  proxyChange
}

func (ch change) key() (k changeKey) {
	switch {
	case ch.Sysctl != nil:
		k.sysctl = *ch.Sysctl
	case ch.Rule != nil:
		k.rule = *ch.Rule
	case ch.Proxy != nil:
		k.proxy = *ch.Proxy
	}
	return k
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

// was reports whether the host is as the change would make it, and the operator's doing
// would be taken back with it: an address that the host answers for already.
func (ch change) was() bool {
	if ch.Proxy == nil {
		return false
	}
	n, err := ch.Proxy.neighbour()
	if err != nil {
		return false
	}
	all, err := netlink.NeighProxyList(n.LinkIndex, n.Family)
	return err == nil && slices.ContainsFunc(all, func(is netlink.Neigh) bool { return is.IP.Equal(n.IP) })
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
