package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// StandbyState is what GET and PUT /v1/standby carry.
type StandbyState struct {
	Standby *bool `json:"standby"` // another director is in charge
}

func (a *api) showStandby(*http.Request) (StandbyState, error) {
	on := a.Standby()
	return StandbyState{&on}, nil
}

func (a *api) setStandby(r *http.Request, want StandbyState) (StandbyState, error) {
	if want.Standby == nil {
		p := problem(http.StatusBadRequest, "the body lacks standby: write {\"standby\": true} or false")
		p.Faults = []Fault{{Place: "standby", Detail: p.Detail}}
		return StandbyState{}, p
	}
	if err := a.SetStandby(caller(r), *want.Standby); errors.As(err, new(*Problem)) {
		return StandbyState{}, err
	} else if err != nil {
		return StandbyState{}, problem(http.StatusConflict, "%v", err)
	}
	return a.showStandby(r)
}

// Standby asks whether the director stands by.
func (c *Client) Standby(ctx context.Context) (bool, error) {
	return c.standby(ctx, http.MethodGet, nil)
}

// SetStandby has the director stand by, or take over.
func (c *Client) SetStandby(ctx context.Context, on bool) error {
	body, err := json.Marshal(StandbyState{&on})
	if err != nil {
		return err
	}
	_, err = c.standby(ctx, http.MethodPut, body)
	return err
}

func (c *Client) standby(ctx context.Context, method string, body []byte) (bool, error) {
	answer, err := c.do(ctx, method, "/v1/standby", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	defer answer.Close()
	var s StandbyState
	if err := json.NewDecoder(answer).Decode(&s); err != nil || s.Standby == nil {
		return false, fmt.Errorf("director at %s: standby: the answer does not say (%v)", c.socket, err)
	}
	return *s.Standby, nil
}
