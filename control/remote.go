package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"pktdirector/conntrack"
)

// Line is an ipvsadm command line, as POST /v1/ipvsadm takes it.
type Line struct {
	Args  []string `json:"args"`            // without the program's name
	Stdin string   `json:"stdin,omitempty"` // of -R
	By    string   `json:"-"`               // who asks, which the API knows
}

// Lists reports whether the command only tells something.
func (l Line) Lists() bool {
	rule, _, err := (&commandLine{}).command(l.Args)
	return err == nil && strings.IndexByte("LShv", rule.op) >= 0
}

// LookUp looks up all names in the command line, so that Remembering names know them.
func (l Line) LookUp(names *Names) {
	_, _ = ParseCommand(l.Args, names) // what is wrong, is told when it is carried out
	for line := range strings.Lines(l.Stdin) {
		_, _ = ParseCommand(strings.Fields(line), names)
	}
}

// Admin changes a director, one request after another.
type Admin interface {
	Editor
	// Ipvsadm carries out an ipvsadm command line.
	Ipvsadm(Line) Answer
	// EndConnections ends the connections, and takes out of use the templates, that
	// f chooses. With dry it only counts them.
	EndConnections(who string, f conntrack.Filter, dry bool) (Ended, error)
	// Standby reports whether the director stands by: see SetStandby.
	Standby() bool
	// SetStandby has the director leave every packet to its host, or take over.
	SetStandby(who string, on bool) error
}

// Ipvsadm has the director carry out an ipvsadm command line.
func (c *Client) Ipvsadm(ctx context.Context, line Line) (Answer, error) {
	body, err := json.Marshal(line)
	if err != nil {
		return Answer{}, err
	}
	answer, err := c.do(ctx, http.MethodPost, "/v1/ipvsadm", bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	defer answer.Close()
	var a Answer
	if err := json.NewDecoder(answer).Decode(&a); err != nil {
		return a, fmt.Errorf("director at %s: ipvsadm: %w", c.socket, err)
	}
	return a, nil
}
