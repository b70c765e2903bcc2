package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// UpgradeReport says what became of an upgrade.
type UpgradeReport struct {
	DryRun      bool    `json:"dry_run"` // the new program was only asked whether it could
	Old         Program `json:"old"`
	New         Program `json:"new"`
	Connections int     `json:"connections"` // that the new program goes on with
	Templates   int     `json:"templates"`   // of persistent services
	// PauseMS is how long no packet was read, in milliseconds: what came waited.
	PauseMS float64 `json:"pause_ms"`
}

// Program is one that runs.
type Program struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
}

// Upgrader has a new program take over from the running one.
type Upgrader interface {
	// Upgrade returns when the new program forwards. With an error the old one goes on
	// as if nothing had been. With dryRun the new program is started, asked whether it
	// could take over, and ended.
	Upgrade(who string, dryRun bool) (UpgradeReport, error)
}

// HandedOver refuses what came to a director that has handed over to another process,
// which is to be asked again.
func HandedOver() error {
	p := problem(http.StatusServiceUnavailable, "the director has handed over to a new program: ask again")
	p.again = true
	return p
}

// NotUpgraded refuses an upgrade that did not come about.
func NotUpgraded(err error) error {
	return problem(http.StatusConflict, "not upgraded, the director goes on as it was: %v", err)
}

func (a *api) upgrade(r *http.Request, _ None) (UpgradeReport, error) {
	dry, err := dryRun(r)
	if err != nil {
		return UpgradeReport{}, err
	}
	return a.Upgrade(caller(r), dry)
}

// Upgrade has the director hand over to the program that now stands where its own did;
// with dryRun it only tells whether that one could take over.
func (c *Client) Upgrade(ctx context.Context, dryRun bool) (UpgradeReport, error) {
	report, err := call[UpgradeReport](ctx, c, http.MethodPost, fmt.Sprintf("/v1/upgrade?dry_run=%t", dryRun), nil)
	if p := (*Problem)(nil); errors.As(err, &p) && p.Status == http.StatusNotFound {
		err = fmt.Errorf("the director that runs is older than upgrades: restart it (%w)", err)
	}
	return report, err
}
