package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"pktdirector/lvs"
)

// Problem is an answer that refuses a request: problem details of RFC 9457.
// It is an error for those who handle or make the request.
type Problem struct {
	Type   string  `json:"type"`   // about:blank: the title says what the status means
	Title  string  `json:"title"`  // the status in words
	Status int     `json:"status"` // of HTTP
	Detail string  `json:"detail"` // what is wrong, and what would be right
	Faults []Fault `json:"faults,omitempty"`
	again  bool    // the same request is right in a moment
}

// Fault is one place of a request that is wrong.
type Fault struct {
	Place  string `json:"place"`           // like services[1].servers[0].weight; "" for the whole
	Value  string `json:"value,omitempty"` // what stands there
	Detail string `json:"detail"`          // what is wrong with it, and what would be right
}

// mediaProblem is the media type of a Problem.
const mediaProblem = "application/problem+json"

// problem returns a refusal with a status of HTTP.
func problem(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// Error says what is wrong, one line for each place.
func (p *Problem) Error() string {
	if len(p.Faults) == 0 {
		return p.Detail
	}
	var all []string
	for _, f := range p.Faults {
		all = append(all, f.String())
	}
	return strings.Join(all, "\n")
}

// String says it in one line.
func (f Fault) String() string {
	if f.Place == "" {
		return f.Detail
	}
	return f.Place + ": " + f.Detail
}

// writeProblem answers with err: a *Problem as it is, what the director said with
// the status that fits.
func writeProblem(a *api, w http.ResponseWriter, r *http.Request, err error) {
	p := (*Problem)(nil)
	switch {
	case errors.As(err, &p):
	case errors.Is(err, lvs.ErrNoService) || errors.Is(err, lvs.ErrNoServer):
		p = problem(http.StatusNotFound, "%v", err)
	default:
		p = problem(http.StatusInternalServerError, "%v", err)
		a.log.Error("a request could not be carried out", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	sendProblem(w, p)
}

func sendProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", mediaProblem)
	if p.again {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(p) // the client went away: nothing to tell it
}
