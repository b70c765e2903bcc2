//go:build !linux

package nstest

import (
	"os"
	"testing"
)

// Main runs the tests as they are: there are no namespaces here.
func Main(m *testing.M) { os.Exit(m.Run()) }

// Enter ends the test: it needs Linux.
func Enter(t testing.TB) {
	t.Helper()
	Require(t, "network namespaces exist on Linux only")
}
