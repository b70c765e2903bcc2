package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// claimState is what a director must know that takes a claim over from another process.
type claimState struct {
	Lock    string                  `json:"lock"` // paths
	File    string                  `json:"file"`
	Changes []change                `json:"changes"`
	Routes  []handedRoute           `json:"routes"`
	Steered map[string]handedSteers `json:"steered"` // by tundev
}

// handedSteers is a steering.
type handedSteers struct {
	Changes []change          `json:"changes"`
	Routes  []handedRoute     `json:"routes"`
	Sysctls map[string]string `json:"sysctls"`
}

// handedRoute is a route into a tundev.
type handedRoute struct {
	Link  int          `json:"link"` // index of the interface
	Table int          `json:"table"`
	To    netip.Prefix `json:"to"`
}

// Hand returns what another process takes the claim over by, with AdoptClaim: the lock's
// file, a duplicate, and a text. Nothing may be steered meanwhile. The claim ends here
// with Leave, not with Release.
func (c *Claim) Hand() (lock *os.File, state []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := claimState{Lock: c.lock.Name(), File: c.file, Changes: c.changes, Routes: handRoutes(c.routes), Steered: map[string]handedSteers{}}
	for dev, st := range c.steered {
		h := handedSteers{Changes: st.changes, Routes: handRoutes(st.routes), Sysctls: map[string]string{}}
		for _, set := range st.sysctls {
			h.Sysctls[set.name] = set.value
		}
		s.Steered[dev] = h
	}
	if state, err = json.Marshal(s); err != nil {
		return nil, nil, err
	}
	fd, err := unix.FcntlInt(c.lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w", c.lock.Name(), err)
	}
	return os.NewFile(uintptr(fd), c.lock.Name()), state, nil
}

func handRoutes(routes []netlink.Route) []handedRoute {
	all := make([]handedRoute, 0, len(routes))
	for i := range routes {
		r := &routes[i]
		ones, _ := r.Dst.Mask.Size()
		addr, _ := netip.AddrFromSlice(r.Dst.IP)
		all = append(all, handedRoute{r.LinkIndex, r.Table, netip.PrefixFrom(addr, ones)})
	}
	return all
}

// Leave gives the claim up for the process that has adopted it: nothing is taken back.
func (c *Claim) Leave() error { return c.lock.Close() }

// AdoptClaim takes over what another process's Claim.Hand returned. The claim changes
// nothing until it is told to steer. It ends with Leave where the other process goes on.
func AdoptClaim(lock *os.File, state []byte) (*Claim, error) {
	var s claimState
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, fmt.Errorf("the host's state of another director: %w", err)
	}
	held, err := lock.Stat()
	there, thereErr := os.Stat(s.Lock)
	if err = errors.Join(err, thereErr); err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.Lock, err)
	}
	if !os.SameFile(held, there) || filepath.Dir(s.Lock) != filepath.Dir(s.File) {
		return nil, fmt.Errorf("lock %s: is another file than the director holds", s.Lock)
	}
	changes, err := json.Marshal(s.Changes)
	if err == nil {
		_, err = parseChanges(changes)
	}
	if err != nil {
		return nil, fmt.Errorf("the host's state of another director: %w", err)
	}
	fd, err := unix.FcntlInt(lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.Lock, err)
	}
	lock.Close()
	lock = os.NewFile(uintptr(fd), s.Lock) // by its path, which Release removes
	c := &Claim{lock: lock, file: s.File, changes: s.Changes, routes: adoptRoutes(s.Routes), steered: map[string]steering{}}
	for dev, h := range s.Steered {
		st := steering{changes: h.Changes, routes: adoptRoutes(h.Routes)}
		for name, value := range h.Sysctls {
			st.sysctls = append(st.sysctls, setting{name, value})
		}
		c.steered[dev] = st
	}
	return c, nil
}

func adoptRoutes(handed []handedRoute) (routes []netlink.Route) {
	for _, h := range handed {
		routes = append(routes, netlink.Route{LinkIndex: h.Link, Table: h.Table, Dst: ipNetOf(h.To), Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_LINK})
	}
	return routes
}

// Own writes into the lock's file that this process is the director now.
func (c *Claim) Own() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.lock.Truncate(0) // the pid is only for a message
	_, err := c.lock.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}
