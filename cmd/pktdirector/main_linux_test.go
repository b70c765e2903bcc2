package main

import (
	"os"
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
	return testbed.Self
}
