package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"

	"pktdirector/conntrack"
)

// Connection is one entry of the connection table, as GET /v1/connections
// lists them.
type Connection struct {
	Protocol        string `json:"protocol"`
	State           string `json:"state"`
	Client          string `json:"client"`
	ClientPort      uint16 `json:"client_port"`
	VIP             string `json:"vip"`
	Port            uint16 `json:"port"`
	Destination     string `json:"destination"`
	DestinationPort uint16 `json:"destination_port"`
	Expires         int64  `json:"expires"` // seconds until it expires
	// Source and SourcePort stand for the client towards a FullNAT server.
	Source     string `json:"source,omitempty"`
	SourcePort uint16 `json:"source_port,omitempty"`

	Method   string `json:"method,omitempty"`   // Masq, Route, Tunnel or FullNat
	Template bool   `json:"template,omitempty"` // it binds a client of a persistent service to its server
	Age      int64  `json:"age"`                // seconds since it began
	Idle     int64  `json:"idle"`               // seconds since its last packet; a template's: its last connection
	// Requests and Replies are what passed the director each way. A template has
	// neither; there are no replies where they do not pass: in DR and TUN.
	Requests *Traffic `json:"requests,omitempty"`
	Replies  *Traffic `json:"replies,omitempty"`
}

// Traffic is packets, and their bytes with IP headers.
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func (t *Traffic) packets() uint64 {
	if t == nil {
		return 0
	}
	return t.Packets
}

func (t *Traffic) bytes() uint64 {
	if t == nil {
		return 0
	}
	return t.Bytes
}

// Ended is how many entries a request ended.
type Ended struct {
	Connections int  `json:"connections"`
	Templates   int  `json:"templates"`         // taken out of use
	DryRun      bool `json:"dry_run,omitempty"` // nothing was ended: they would have been
}

// queryParameters adds parameters to an operation.
func (o Operation) queryParameters(all ...[]Parameter) Operation {
	for _, some := range all {
		for _, p := range some {
			o = o.query(p.Name, p.Summary)
		}
	}
	return o
}

func (a *api) listConnections(r *http.Request, yield func(Connection) bool) error {
	q, err := connQuery(r.URL.Query())
	if err != nil {
		return err
	}
	if q.Sort != "" && (q.Limit == 0 || q.Limit > MaxSorted) {
		return faultAt(http.StatusBadRequest, "?sort", q.Sort, fmt.Sprintf("the director sorts no more than %d connections: add a limit, from 1 to %[1]d", MaxSorted))
	}
	all := func(yield func(Connection) bool) { a.Connections(q.Filter, yield) }
	if q.Sort != "" {
		for _, c := range newRanking(q.Sort).firstOf(all, q.Limit) {
			if !yield(c) {
				break
			}
		}
		return nil
	}
	n := 0
	for c := range all {
		if n++; !yield(c) || n == q.Limit {
			break
		}
	}
	return nil
}

// endConnections answers DELETE /v1/connections. Without kind only connections are
// meant, and without a filter none unless all is true.
func (a *api) endConnections(r *http.Request, _ None) (Ended, error) {
	dry, err := dryRun(r)
	if err != nil {
		return Ended{}, err
	}
	values := r.URL.Query()
	all := values.Get("all")
	if all != "" && all != "true" && all != "false" {
		return Ended{}, faultAt(http.StatusBadRequest, "?all", all, fmt.Sprintf("%q is neither true nor false", all))
	}
	kind := values.Get("kind")
	values.Del("all")
	values.Del("dry_run")
	q, err := connQuery(values)
	if err != nil {
		return Ended{}, err
	}
	if kind == "" {
		q.Kinds = conntrack.Connections
	}
	switch {
	case q.IsZero() && all != "true":
		return Ended{}, problem(http.StatusBadRequest, "no filter: all connections would end: name some of them, or add all=true")
	case !q.IsZero() && all == "true":
		return Ended{}, faultAt(http.StatusBadRequest, "?all", all, "not all are meant where a filter is: leave one of them out")
	}
	return a.EndConnections(caller(r), q.Filter, dry)
}

func connQuery(v url.Values) (ConnQuery, error) {
	q, err := ParseConnQuery(v)
	if wrong := (*ParameterError)(nil); errors.As(err, &wrong) {
		return q, faultAt(http.StatusBadRequest, "?"+wrong.Name, wrong.Value, wrong.Detail)
	}
	return q, err
}

// Connections reads the director's connection table.
func (c *Client) Connections(ctx context.Context) (all []Connection, err error) {
	for one, err := range c.SelectConnections(ctx, ConnQuery{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// SelectConnections reads the connections that q asks for as they come. Without a
// limit, sorted ones are all held in memory. An error is the last of the sequence.
func (c *Client) SelectConnections(ctx context.Context, q ConnQuery) iter.Seq2[Connection, error] {
	if q.Sort == "" || q.Limit != 0 && q.Limit <= MaxSorted {
		return c.readConnections(ctx, q)
	}
	return func(yield func(Connection, error) bool) {
		var failed error
		bare := q
		bare.Sort, bare.Limit = "", 0
		sorted := newRanking(q.Sort).firstOf(func(yield func(Connection) bool) {
			for one, err := range c.readConnections(ctx, bare) {
				if failed = err; err != nil || !yield(one) {
					return
				}
			}
		}, q.Limit)
		if failed != nil {
			yield(Connection{}, failed)
			return
		}
		for _, one := range sorted {
			if !yield(one, nil) {
				return
			}
		}
	}
}

func (c *Client) readConnections(ctx context.Context, q ConnQuery) iter.Seq2[Connection, error] {
	path := "/v1/connections"
	if v := q.Values(); len(v) > 0 {
		path += "?" + v.Encode()
	}
	return func(yield func(Connection, error) bool) {
		body, err := c.do(ctx, http.MethodGet, path, nil)
		if err != nil {
			yield(Connection{}, err)
			return
		}
		defer body.Close()
		for d := json.NewDecoder(body); ; {
			var one Connection
			switch err := d.Decode(&one); {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(Connection{}, fmt.Errorf("director at %s: connections: %w", c.socket, err))
				return
			}
			if !yield(one, nil) {
				return
			}
		}
	}
}

// EndConnections ends the connections that f chooses, and takes out of use the
// templates it chooses; f.Kinds 0 means connections. With dry it only counts them.
// all must be set where f chooses everything.
func (c *Client) EndConnections(ctx context.Context, f conntrack.Filter, all, dry bool) (Ended, error) {
	v := ConnQuery{Filter: f}.Values()
	if f.Kinds == conntrack.AllKinds {
		v.Set("kind", "all")
	}
	if all {
		v.Set("all", "true")
	}
	if dry {
		v.Set("dry_run", "true")
	}
	return call[Ended](ctx, c, http.MethodDelete, "/v1/connections?"+v.Encode(), nil)
}
