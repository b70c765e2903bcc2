package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Diagnosis is one thing that goes wrong for clients, seen in what a running
// director counts.
type Diagnosis struct {
	Code        string `json:"code"` // stable, for programs
	Text        string `json:"text"` // what was seen, with its numbers
	Remedy      string `json:"remedy"`
	Service     string `json:"service,omitempty"` // as ipvsadm names it
	Server      string `json:"server,omitempty"`
	Connections int    `json:"connections,omitempty"` // that it was seen in
	Client      string `json:"client,omitempty"`      // one of theirs
}

// Diagnoses is the answer to GET /v1/diagnosis, worst first.
type Diagnoses struct {
	Diagnoses []Diagnosis `json:"diagnoses"`
}

func (a *api) showDiagnosis(*http.Request) (Diagnoses, error) {
	return Diagnoses{append([]Diagnosis{}, a.Diagnose()...)}, nil // [] rather than null
}

// Diagnose asks the director what goes wrong for clients.
func (c *Client) Diagnose(ctx context.Context) ([]Diagnosis, error) {
	answer, err := c.do(ctx, http.MethodGet, "/v1/diagnosis", nil)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	var d Diagnoses
	if err := json.NewDecoder(answer).Decode(&d); err != nil {
		return nil, fmt.Errorf("director at %s: diagnosis: %w", c.socket, err)
	}
	return d.Diagnoses, nil
}

// WriteDiagnoses prints one line for each.
func WriteDiagnoses(w io.Writer, all []Diagnosis) error {
	for _, d := range all {
		if _, err := fmt.Fprintf(w, "%s: %s; %s\n", d.Code, d.Text, d.Remedy); err != nil {
			return err
		}
	}
	return nil
}
