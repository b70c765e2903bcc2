//go:build !linux

package handover

import (
	"errors"
	"os"
)

// Successor needs Linux.
type Successor struct{ *Conn }

// Start needs Linux.
func Start(string, []string, []string) (*Successor, error) { return nil, errors.ErrUnsupported }

// PID is 0.
func (s *Successor) PID() int { return 0 }

// Kill has nothing to end.
func (s *Successor) Kill() error { return nil }

// Ended never is.
func (s *Successor) Ended() <-chan struct{} { return nil }

// How is empty.
func (s *Successor) How() string { return "" }

// Inherited returns nil: nobody has a successor.
func Inherited() (*Conn, error) { return nil, nil }

// NewMemory needs Linux.
func NewMemory(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// Map needs Linux.
func Map(*os.File) ([]byte, func() error, error) { return nil, nil, errors.ErrUnsupported }
