package control

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// ReloadReport says what a reload did or, with dry_run, would do.
type ReloadReport struct {
	File   string `json:"file"`    // the configuration file
	DryRun bool   `json:"dry_run"` // nothing was done: it would have been
	Policy Drift  `json:"policy"`  // what becomes of what was changed by hand
	// Drift is what was changed by hand since the file was loaded.
	Drift []DriftStep `json:"drift"`
	Steps []Step      `json:"steps"`
	// Restart is what the file says otherwise and only a start can change: with
	// any of it a reload is refused as a whole.
	Restart []Fault `json:"restart"`
}

// DriftReport says what was changed by hand since the file was loaded.
type DriftReport struct {
	File  string      `json:"file"`
	Drift []DriftStep `json:"drift"`
}

// Reloader loads a director's configuration file again. All of a reload is done, or
// none: its error is a *Problem where the file is to blame.
type Reloader interface {
	// Reload is told who asked for it.
	Reload(who string, dryRun bool) (ReloadReport, error)
	Drift() (DriftReport, error)
}

// NotReloadable refuses to load a file that cannot be read, whose err has one fault a
// line.
func NotReloadable(err error) error {
	p := problem(http.StatusUnprocessableEntity, "the configuration file cannot be loaded, and nothing was changed: %v", err)
	for line := range strings.Lines(err.Error()) {
		p.Faults = append(p.Faults, Fault{Detail: strings.TrimSuffix(line, "\n")})
	}
	return p
}

// NeedsRestart refuses to load a file that asks for what only a start can do.
func NeedsRestart(file string, faults []Fault) error {
	p := problem(http.StatusConflict, "%s says what no reload can change, and nothing was changed", file)
	p.Faults = faults
	return p
}

func (a *api) reload(r *http.Request, _ None) (ReloadReport, error) {
	dry, err := dryRun(r)
	if err != nil {
		return ReloadReport{}, err
	}
	return a.Reload(caller(r), dry)
}

func (a *api) showDrift(*http.Request) (DriftReport, error) { return a.Drift() }

// Reload has the director load its configuration file again; with dryRun it only
// tells what that would do.
func (c *Client) Reload(ctx context.Context, dryRun bool) (ReloadReport, error) {
	return call[ReloadReport](ctx, c, http.MethodPost, fmt.Sprintf("/v1/reload?dry_run=%t", dryRun), nil)
}

// Drift asks what was changed by hand since the configuration file was loaded.
func (c *Client) Drift(ctx context.Context) (DriftReport, error) {
	return call[DriftReport](ctx, c, http.MethodGet, "/v1/drift", nil)
}
