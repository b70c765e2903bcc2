package nstest

import (
	"os"
	"testing"
)

// RequireEnv names the environment variable that turns skipped tests into
// failed ones when its value is "all".
const RequireEnv = "PKTDIRECTOR_REQUIRE"

// Require ends a test that cannot run for want of something: it skips the
// test, or fails it where the environment demands that every test runs.
// missing is a sentence that names what is missing and what to do.
func Require(t testing.TB, missing string) {
	t.Helper()
	if os.Getenv(RequireEnv) == "all" {
		t.Fatalf("%s=all, and this test cannot run: %s", RequireEnv, missing)
	}
	t.Skip(missing)
}
