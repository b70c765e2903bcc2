package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
)

// edit makes one random edit in one of the ways.
func (s *storm) edit() {
	if s.script.rng.IntN(60) == 0 {
		s.flushAndRestore()
		return
	}
	base := s.model.run
	if s.script.rng.IntN(3) == 0 && s.script.steady(&s.model.file) {
		base = s.model.file // a reload takes back what was done by hand
	}
	next := s.script.next(base, s.longAgo())
	ops := stormOps(&s.model.run, &next)
	byHand := ops != nil && stormText(&base) == stormText(&s.model.run)
	switch way := s.script.rng.IntN(6); {
	case byHand && way < 2 && s.ipvsadmCan(ops):
		for _, op := range ops {
			then := stormCopy(s.model.run)
			op.apply(&then)
			s.do(then, "ipvsadm "+op.ipvsadm, func() error {
				_, err := s.lab.Output(s.t.Context(), s.host, append([]string{"ipvsadm", "--control", filepath.Join(filepath.Dir(s.file), "s")}, strings.Fields(op.ipvsadm)...)...)
				return err
			})
		}
	case byHand && way < 4 && !slices.ContainsFunc(ops, func(op stormOp) bool { return op.change == nil }):
		s.byAPI(ops, next)
	default:
		reload := []func() error{s.reloadByAPI, s.reloadByCommand, s.reloadBySignal}[s.script.rng.IntN(3)]
		s.write(next, "", reload)
	}
	s.compare()
}

// ipvsadmCan reports whether the services that stay can serve between one command
// line and the next.
func (s *storm) ipvsadmCan(ops []stormOp) bool {
	c := stormCopy(s.model.run)
	for _, op := range ops {
		if op.apply(&c); !s.script.steady(&c) {
			return false
		}
	}
	return true
}

// longAgo lists servers that have been away for many edits: a client's packets come at
// longer and longer intervals. It counts edits and not seconds, so that a seed is a script.
func (s *storm) longAgo() (all []stormServer) {
	const many = 20
	for at, f := range s.model.absent {
		if f.on && len(s.model.edits)-f.since > many {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b stormServer) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

// do makes an edit and has the model know of it.
func (s *storm) do(next control.Config, words string, make func() error) {
	s.t.Helper()
	began := s.client.now()
	err := make()
	ended := s.client.now()
	s.model.edits = append(s.model.edits, stormEdit{len(s.model.edits), began, ended, words})
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", s.model.edits[len(s.model.edits)-1], err, s.model.before(ended))
	}
	s.model.become(next, began, ended)
}

// byAPI makes all changes in one request.
func (s *storm) byAPI(ops []stormOp, next control.Config) {
	var words []string
	var t control.Transaction
	for _, op := range ops {
		words = append(words, op.ipvsadm)
		t.Changes = append(t.Changes, *op.change)
	}
	what := strings.Join(words, "; ")
	ctx := s.t.Context()
	if s.script.rng.IntN(3) == 0 {
		var all control.RulesetSpec
		for i := range next.Ruleset.Services {
			all.Services = append(all.Services, stormWholeSpec(&next.Ruleset.Services[i]))
		}
		s.do(next, "PUT of the ruleset: "+what, func() error { _, err := s.api.PutRuleset(ctx, all, false); return err })
		return
	}
	s.do(next, "transaction: "+what, func() error { _, err := s.api.Transact(ctx, t); return err })
}

// flushAndRestore is what a script does that loads saved rules.
func (s *storm) flushAndRestore() {
	var lines []string
	none := stormCopy(s.model.run)
	none.Ruleset.Services = nil
	for _, op := range stormOps(&none, &s.model.run) {
		lines = append(lines, op.ipvsadm)
	}
	all := s.model.run
	s.do(none, "ipvsadm -C", func() error { return s.ipvsadm(control.Line{Args: []string{"-C"}}) })
	s.do(all, "ipvsadm -R of all", func() error {
		return s.ipvsadm(control.Line{Args: []string{"-R"}, Stdin: strings.Join(lines, "\n") + "\n"})
	})
	s.compare()
}

func (s *storm) ipvsadm(line control.Line) error {
	a, err := s.api.Ipvsadm(s.t.Context(), line)
	if err == nil && (a.Code != 0 || a.Stderr != "") {
		err = fmt.Errorf("exit code %d: %s", a.Code, a.Stderr)
	}
	return err
}

// write changes the file and has the director load it.
func (s *storm) write(next control.Config, why string, reload func() error) {
	if why == "" {
		why = "reload: " + stormPlan(&s.model.run, &next)
	}
	if err := os.WriteFile(s.file+".new", []byte(next.Export().Config), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.file+".new", s.file); err != nil {
		s.t.Fatal(err)
	}
	s.model.file = next
	s.do(next, why, reload)
}

func (s *storm) reloadByAPI() error {
	_, err := s.api.Reload(s.t.Context(), false)
	return err
}

func (s *storm) reloadByCommand() error {
	_, err := s.lab.Output(s.t.Context(), s.host, "reload", "--control", filepath.Join(filepath.Dir(s.file), "s"))
	return err
}

// reloadBySignal has nobody tell when it is done: the director does what its file says.
func (s *storm) reloadBySignal() error {
	now, err := s.api.Health(s.t.Context())
	if err != nil {
		return err
	}
	if err := syscall.Kill(now.PID, syscall.SIGHUP); err != nil {
		return err
	}
	want := stormText(&s.model.file)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		switch got, err := s.running(); {
		case err != nil:
			return err
		case got == want:
			return nil
		case time.Now().After(deadline):
			return errors.New("the file was not loaded within a minute of SIGHUP")
		}
	}
}

func (s *storm) running() (string, error) {
	e, err := s.api.Export(s.t.Context())
	if err != nil {
		return "", err
	}
	c, err := control.Parse("what runs", []byte(e.Config))
	if err != nil {
		return "", err
	}
	return stormText(c), nil
}

// compare holds what runs against the model.
func (s *storm) compare() {
	s.t.Helper()
	got, err := s.running()
	if err != nil {
		s.t.Fatal(err)
	}
	if diff := cmp.Diff(stormText(&s.model.run), got); diff != "" {
		s.t.Fatalf("the director does something else than it was told (-told +does):\n%s\nafter\n%s", diff, s.model.before(s.client.now()))
	}
}

// upgrade has the director hand over to a successor.
func (s *storm) upgrade() {
	s.do(s.model.run, "upgrade", func() error {
		_, err := s.lab.Output(s.t.Context(), s.host, "upgrade", "--control", filepath.Join(filepath.Dir(s.file), "s"))
		return err
	})
	s.compare()
}
