package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/host"
	"pktdirector/testbed/nstest"
)

// A claim goes to another holder with all that was changed: nobody else can take it
// meanwhile, what is steered stays, other rules are followed, and the end takes all back.
func TestAClaimGoesOnElsewhere(t *testing.T) {
	tundevHost(t)
	before := hostState(t)
	dir := t.TempDir()
	c, _, err := host.TakeClaim(dir)
	must(t, err)
	rules := webRules()
	must(t, c.Steer("lb0", rules))
	steered := hostState(t)

	lock, state, err := c.Hand()
	must(t, err)
	other, err := host.AdoptClaim(lock, state)
	must(t, err)
	must(t, c.Leave())
	if _, _, err := host.TakeClaim(dir); err == nil || !strings.Contains(err.Error(), "another director") {
		t.Errorf("a second claim: %v", err)
	}
	must(t, other.Own())
	if diff := cmp.Diff(steered, hostState(t)); diff != "" {
		t.Errorf("handed over (-before +after):\n%s", diff)
	}
	must(t, other.Steer("lb0", rules))
	if diff := cmp.Diff(steered, hostState(t)); diff != "" {
		t.Errorf("the same rules again (-before +after):\n%s", diff)
	}
	fewer := rules
	fewer.Services = rules.Services[:1]
	must(t, other.Steer("lb0", fewer))
	if len(hostState(t)) >= len(steered) {
		t.Errorf("fewer services leave as much steered: %q", hostState(t))
	}
	must(t, other.Release())
	if diff := cmp.Diff(before, hostState(t)); diff != "" {
		t.Errorf("released (-before +after):\n%s", diff)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left in the state folder: %q, %v", left, err)
	}
}

// What is no claim is refused, and changes nothing.
func TestAdoptingWhatIsNoClaim(t *testing.T) {
	nstest.Enter(t)
	dir := t.TempDir()
	c, _, err := host.TakeClaim(dir)
	must(t, err)
	defer c.Release()
	lock, state, err := c.Hand()
	must(t, err)
	defer lock.Close()
	another, err := os.Create(filepath.Join(dir, "another"))
	must(t, err)
	defer another.Close()
	for name, c := range map[string]struct {
		lock  *os.File
		state string
	}{
		"no text":             {lock, "{"},
		"another file":        {another, string(state)},
		"a file that is gone": {lock, `{"lock": "/does/not/exist", "file": "/does/not/x"}`},
		"another folder":      {lock, strings.Replace(string(state), `"file":"`, `"file":"/tmp/x`, 1)},
		"no sysctl":           {lock, strings.Replace(string(state), `"changes":null`, `"changes":[{"sysctl":{"Path":"/etc/passwd","Old":"x","New":"y"}}]`, 1)},
	} {
		if _, err := host.AdoptClaim(c.lock, []byte(c.state)); err == nil {
			t.Errorf("%s: adopted %s", name, c.state)
		}
	}
}

// Two guards stand beside each other while one director hands over to another: there is
// no moment without one, and a third director sees that somebody is there.
func TestGuardsSideBySide(t *testing.T) {
	nstest.Enter(t)
	first, err := host.NewGuard()
	must(t, err)
	name := first.Name()
	for range 3 {
		second, err := host.NewGuardBeside(first.Name())
		must(t, err)
		if second.Name() == first.Name() {
			t.Fatalf("both are called %s", second.Name())
		}
		must(t, second.Apply(host.RulesFor([]host.Link{{Name: "lo"}}, webRules())))
		must(t, first.Apply(host.RulesFor([]host.Link{{Name: "lo"}}, webRules())))
		if second.Owned() {
			if _, err := host.NewGuard(); !errors.Is(err, host.ErrOtherDirector) {
				t.Errorf("beside two: %v, want ErrOtherDirector", err)
			}
		}
		must(t, first.Close())
		if _, err := host.NewGuard(); second.Owned() && !errors.Is(err, host.ErrOtherDirector) {
			t.Errorf("beside %s: %v, want ErrOtherDirector", second.Name(), err)
		}
		first = second
	}
	if first.Name() == name {
		t.Errorf("after three it is called %s again", name)
	}
	must(t, first.Close())
	nothing(t)
}
