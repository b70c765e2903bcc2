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
	if kind := os.Getenv(asSuccessor); kind != "" {
		os.Exit(successor(kind))
	}
	if os.Getenv(asProgram) != "" {
		os.Exit(execute(commandLine(os.Args)))
	}
	nstest.Main(m)
}

// program returns the program's file for a test that starts it. A test whose subtests
// run at the same time calls it before they do.
func program(t testing.TB) string {
	t.Helper()
	if os.Getenv(asProgram) != "" {
		return testbed.Self
	}
	t.Setenv(asProgram, "yes")
	// Under the race detector each process otherwise sleeps a second at its end.
	t.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	return testbed.Self
}
