package main

import (
	"os"
	"strings"
	"testing"

	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

// asProgram makes the test binary behave as the program itself.
const asProgram = "PKTDIRECTOR_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(execute(os.Args[1:]))
	}
	nstest.Main(m)
}

// program returns the program's file for a test that starts it.
func program(t testing.TB) string {
	t.Helper()
	t.Setenv(asProgram, "yes")
	// Under the race detector each process otherwise sleeps a second at its end.
	t.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	return testbed.Self
}
