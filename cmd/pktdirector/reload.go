package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
)

// reloader loads the configuration file of a running director again: a three-way
// merge of the file as it was loaded, the file as it is, and what the director does.
type reloader struct {
	file  string // an absolute path
	admin *administration
	log   *slog.Logger
	// begins is told of a reload, and what it returns of its end.
	begins func() (ended func())

	mu     sync.Mutex                     // one reload at a time; taken before admin's
	loaded atomic.Pointer[control.Config] // changed under mu
	left   atomic.Bool                    // to another process; changed under mu
}

// Reload implements control.Reloader.
func (r *reloader) Reload(who string, dryRun bool) (control.ReloadReport, error) {
	report, err := r.reload(dryRun)
	r.tell(who, report, err)
	return report, err
}

// reload does all of a reload, or nothing.
func (r *reloader) reload(dryRun bool) (control.ReloadReport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left.Load() {
		return control.ReloadReport{}, control.HandedOver()
	}
	if !dryRun && r.begins != nil {
		defer r.begins()()
	}
	report := control.ReloadReport{File: r.file, DryRun: dryRun, Policy: r.loaded.Load().Drift()}
	next, err := loadConfig(r.file)
	if err != nil {
		return report, control.NotReloadable(err)
	}
	report.Policy = next.Drift()
	report.Restart = append([]control.Fault{}, r.loaded.Load().Restart(next)...)
	if len(report.Restart) > 0 && !dryRun {
		return report, control.NeedsRestart(r.file, report.Restart)
	}
	if err := r.admin.lock(); err != nil {
		return report, err
	}
	defer r.admin.mu.Unlock()
	base, says := r.loaded.Load().Asked(defaults()), next.Asked(defaults())
	now := runningNow(r.admin.director.Director, base)
	target := control.Merge(base, says, now, next.Drift())
	report.Drift = control.DriftFates(base, says, now, target)
	report.Steps = append([]control.Step{}, control.Diff(now, target)...) // JSON: [] where there is none
	if len(report.Restart) > 0 {
		return report, nil // the new file's links are not the engine's
	}
	if err := r.admin.director.checkAll(target.Ruleset); err != nil {
		return report, unfit(r.file, err)
	}
	if dryRun {
		return report, nil
	}
	if len(report.Steps) > 0 {
		if err := r.admin.move(now, target); err != nil {
			return report, err
		}
	}
	r.loaded.Store(next)
	return report, nil
}

// unfit refuses a file that is right by itself, and wrong with what was changed by
// hand and is kept.
func unfit(file string, err error) error {
	return &control.Problem{Type: "about:blank", Title: http.StatusText(http.StatusUnprocessableEntity), Status: http.StatusUnprocessableEntity,
		Detail: fmt.Sprintf("%s and what was changed by hand do not go together, and nothing was changed: %v", file, err)}
}

// Drift implements control.Reloader.
func (r *reloader) Drift() (control.DriftReport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admin.mu.Lock()
	defer r.admin.mu.Unlock()
	base := r.loaded.Load().Asked(defaults())
	return control.DriftReport{File: r.file, Drift: control.Drifted(base, runningNow(r.admin.director.Director, base))}, nil
}

// runningNow is what a director does. The defences that turn themselves on and off
// (1 and 2) are as the file has them.
func runningNow(d *dataplane.Director, base control.Running) control.Running {
	now := control.Running{Ruleset: d.Ruleset(), Sysctl: d.SettingValues()}
	now.Timeouts.TCP, now.Timeouts.TCPFin, now.Timeouts.UDP = d.Timeouts()
	for name, is := range now.Sysctl {
		if sameSetting(name, is, base.Sysctl[name]) {
			now.Sysctl[name] = base.Sysctl[name]
		}
	}
	return now
}

// sameSetting compares values of a setting: of a defence that turns itself on and off,
// 1 and 2 are the same.
func sameSetting(name, a, b string) bool {
	automatic := func(v string) bool { return v == "1" || v == "2" }
	switch name {
	case "drop_entry", "drop_packet", "secure_tcp":
		return a == b || automatic(a) && automatic(b)
	}
	return a == b
}

// defaults are those of a director whose file says nothing.
func defaults() control.Running {
	d := control.Running{Sysctl: map[string]string{}, Timeouts: control.DefaultTimeouts()}
	for _, s := range dataplane.Settings() {
		d.Sysctl[s.Name] = strconv.Itoa(s.Default)
	}
	return d
}

// run reloads, and logs what was done: one line for each step, and none but the
// last where there was nothing to do. why says who asked.
func (r *reloader) run(why string) {
	report, err := r.reload(false)
	r.tell(why, report, err)
}

// tell logs what a reload did.
func (r *reloader) tell(why string, report control.ReloadReport, err error) {
	if report.DryRun {
		return
	}
	if err != nil {
		r.admin.publish("reload asked by "+why, []string{"load " + r.file}, err.Error())
	}
	if p := (*control.Problem)(nil); errors.As(err, &p) {
		for _, f := range p.Faults {
			r.log.Error("not reloaded: "+f.String(), "asked by", why)
		}
		if len(p.Faults) == 0 {
			r.log.Error("not reloaded: "+p.Detail, "asked by", why)
		}
		return
	}
	if err != nil {
		r.log.Error("not reloaded", "asked by", why, "error", err)
		return
	}
	for _, d := range report.Drift {
		r.log.Warn("changed by hand: " + d.String())
	}
	var words []string
	for _, s := range report.Steps {
		r.log.Info("reload: " + s.String())
		words = append(words, s.String())
	}
	if len(words) > 0 {
		r.admin.publish("reload asked by "+why, words, "")
	}
	r.log.Info("reloaded", "asked by", why, "file", r.file, "steps", len(report.Steps), "changed by hand", len(report.Drift))
}

// move makes the director go from now to target: all of it, or, with an error,
// nothing. The caller holds a.mu.
func (a *administration) move(now, target control.Running) (err error) {
	g := a.director
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("nothing was changed: %w", err)
		if back := a.become(now); back != nil {
			err = errors.Join(err, fmt.Errorf("going back: %w", back))
		}
		if back := g.follow(now.Ruleset); back != nil {
			err = errors.Join(err, fmt.Errorf("going back: what the host is kept off: %w", back))
		}
	}()
	if err := g.follow(both(now.Ruleset, target.Ruleset)); err != nil {
		return fmt.Errorf("the host cannot be kept off what is new: %w", err)
	}
	if err := a.become(target); err != nil {
		return err
	}
	if err := g.follow(target.Ruleset); err != nil {
		return fmt.Errorf("what the host is kept off cannot be changed: %w", err)
	}
	return nil
}

// become has the engine do what state says.
func (a *administration) become(state control.Running) error {
	t := state.Timeouts
	a.commander.Timeouts = [3]time.Duration{t.TCP, t.TCPFin, t.UDP}
	return become(a.director.Director, state)
}

// become has an engine do what state says.
func become(d *dataplane.Director, state control.Running) error {
	now := d.SettingValues()
	for name, value := range state.Sysctl {
		if sameSetting(name, now[name], value) {
			continue
		}
		if err := d.SetTunable(name, value); err != nil {
			return err
		}
	}
	t := state.Timeouts
	d.SetTimeouts(t.TCP, t.TCPFin, t.UDP)
	return d.Apply(state.Ruleset)
}

// both is what either ruleset balances, for the host to be kept off.
func both(now, target lvs.Ruleset) lvs.Ruleset {
	all := lvs.Ruleset{Services: slices.Concat(now.Services, target.Services), Marks: target.Marks}
	if !slices.EqualFunc(now.Marks, target.Marks, lvs.MarkRule.Equal) {
		all.Marks = slices.Concat(target.Marks, now.Marks)
	}
	return all
}
