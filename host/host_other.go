//go:build !linux

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// errNeedsLinux is the answer to everything here on another system.
func errNeedsLinux() error {
	return fmt.Errorf("a director on network interfaces needs Linux: %w", errors.ErrUnsupported)
}

// Guard needs Linux.
type Guard struct{}

// NewGuard needs Linux.
func NewGuard() (*Guard, error) { return nil, errNeedsLinux() }

// NewGuardBeside needs Linux.
func NewGuardBeside(string) (*Guard, error) { return nil, errNeedsLinux() }

// Name is empty.
func (g *Guard) Name() string { return "" }

// RemoveBeside has nothing to remove.
func (g *Guard) RemoveBeside() error { return nil }

// Apply needs Linux.
func (g *Guard) Apply(GuardRules) error { return errNeedsLinux() }

// Owned needs Linux.
func (g *Guard) Owned() bool { return false }

// Close has nothing to close.
func (g *Guard) Close() error { return nil }

// Watcher needs Linux.
type Watcher struct{}

// NewWatcher needs Linux.
func NewWatcher([]Link, Static, Table, *slog.Logger) (*Watcher, error) { return nil, errNeedsLinux() }

// Run needs Linux.
func (w *Watcher) Run(context.Context) error { return errNeedsLinux() }

// Close has nothing to close.
func (w *Watcher) Close() error { return nil }

// Claim needs Linux.
type Claim struct{}

// TakeClaim needs Linux.
func TakeClaim(string) (*Claim, []string, error) { return nil, nil, errNeedsLinux() }

// Steer needs Linux.
func (c *Claim) Steer(string, lvs.Ruleset) error { return errNeedsLinux() }

// Release has nothing to release.
func (c *Claim) Release() error { return nil }

// Hand needs Linux.
func (c *Claim) Hand() (*os.File, []byte, error) { return nil, nil, errNeedsLinux() }

// Leave has nothing to leave.
func (c *Claim) Leave() error { return nil }

// Own needs Linux.
func (c *Claim) Own() error { return errNeedsLinux() }

// AdoptClaim needs Linux.
func AdoptClaim(*os.File, []byte) (*Claim, error) { return nil, errNeedsLinux() }

// Cleanup needs Linux.
func Cleanup(string) ([]string, error) { return nil, errNeedsLinux() }

// Check needs Linux.
func Check(context.Context, Plan) ([]Finding, error) { return nil, errNeedsLinux() }

// Touches needs Linux.
func Touches(Plan) (string, bool) { return "this is not Linux", true }

// Ask needs Linux.
func Ask(context.Context, string, netip.Addr, time.Duration) ([]packet.MAC, error) {
	return nil, errNeedsLinux()
}

// AvailablePages is not known.
func AvailablePages() (int64, error) { return 0, errors.ErrUnsupported }

// Memory is not known.
func Memory() uint64 { return 0 }
