package nstest_test

import (
	"net"
	"os"
	"testing"

	"pktdirector/testbed/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

func TestEnter(t *testing.T) {
	outside, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	nstest.Enter(t)
	in, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if in == outside {
		t.Errorf("network namespace %s is the run's, want a new one", in)
	}
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(ifs) != 1 || ifs[0].Flags&net.FlagUp == 0 {
		t.Errorf("interfaces %v, want lo alone and up", ifs)
	}
	if os.Getpid() != 1 {
		t.Errorf("pid %d, want 1 in a new pid namespace", os.Getpid())
	}
}
