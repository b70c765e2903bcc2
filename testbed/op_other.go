//go:build !linux

package testbed

import "errors"

// Apply implements Op: it needs Linux.
func (o RenameLink) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o LinkUp) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o AddAddr) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o AddRoute) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o Sysctl) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o AddIPIP) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o AddTundev) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o AddVeth) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o ProxyNeighbour) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o AddBridge) Apply() error { return errors.ErrUnsupported }

// Apply implements Op: it needs Linux.
func (o PlugIn) Apply() error { return errors.ErrUnsupported }
