package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// call makes a request with a body of JSON, nil for none, and reads an answer of
// JSON; None for none.
func call[Answer any](ctx context.Context, c *Client, method, path string, body any) (Answer, error) {
	var answer Answer
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return answer, fmt.Errorf("%s %s: %w", method, path, err)
		}
		text = bytes.NewReader(b)
	}
	got, err := c.do(ctx, method, path, text)
	if err != nil {
		return answer, err
	}
	defer got.Close()
	if typeOf[Answer]() == nil {
		return answer, nil
	}
	if err := json.NewDecoder(got).Decode(&answer); err != nil {
		return answer, fmt.Errorf("director at %s: %s %s: the answer: %w", c.socket, method, path, err)
	}
	return answer, nil
}

// Patch names the members of a ServiceSpec or ServerSpec that change, by their
// JSON names; nil stands for the default. All others stay as they are.
type Patch map[string]any

func servicePath(service string) string { return "/v1/services/" + url.PathEscape(service) }

func serverPath(service, server string) string {
	return servicePath(service) + "/servers/" + url.PathEscape(server)
}

// Services reads all services.
func (c *Client) Services(ctx context.Context) ([]ServiceState, error) {
	return call[[]ServiceState](ctx, c, http.MethodGet, "/v1/services", nil)
}

// Service reads a service, named as ServiceID does.
func (c *Client) Service(ctx context.Context, service string) (ServiceState, error) {
	return call[ServiceState](ctx, c, http.MethodGet, servicePath(service), nil)
}

// PutService has a service be as spec says. Its servers stay where spec's are nil.
func (c *Client) PutService(ctx context.Context, service string, spec ServiceSpec) (Outcome, error) {
	return call[Outcome](ctx, c, http.MethodPut, servicePath(service), spec)
}

// PatchService changes what p names of a service.
func (c *Client) PatchService(ctx context.Context, service string, p Patch) (Outcome, error) {
	return call[Outcome](ctx, c, http.MethodPatch, servicePath(service), p)
}

// DeleteService has a service not be there.
func (c *Client) DeleteService(ctx context.Context, service string) (Outcome, error) {
	return call[Outcome](ctx, c, http.MethodDelete, servicePath(service), nil)
}

// Servers reads the real servers of a service.
func (c *Client) Servers(ctx context.Context, service string) ([]ServerState, error) {
	return call[[]ServerState](ctx, c, http.MethodGet, servicePath(service)+"/servers", nil)
}

// Server reads a real server, named as ServerID does.
func (c *Client) Server(ctx context.Context, service, server string) (ServerState, error) {
	return call[ServerState](ctx, c, http.MethodGet, serverPath(service, server), nil)
}

// PutServer has a real server be as spec says.
func (c *Client) PutServer(ctx context.Context, service, server string, spec ServerSpec) (Outcome, error) {
	return call[Outcome](ctx, c, http.MethodPut, serverPath(service, server), spec)
}

// PatchServer changes what p names of a real server: Patch{"weight": 5}.
func (c *Client) PatchServer(ctx context.Context, service, server string, p Patch) (Outcome, error) {
	return call[Outcome](ctx, c, http.MethodPatch, serverPath(service, server), p)
}

// DeleteServer has a real server not be there.
func (c *Client) DeleteServer(ctx context.Context, service, server string) (Outcome, error) {
	return call[Outcome](ctx, c, http.MethodDelete, serverPath(service, server), nil)
}

// Ruleset reads all services as the configuration file writes them.
func (c *Client) Ruleset(ctx context.Context) (RulesetSpec, error) {
	return call[RulesetSpec](ctx, c, http.MethodGet, "/v1/ruleset", nil)
}

// PutRuleset has these services be balanced and no others; with dry it only tells
// what would change.
func (c *Client) PutRuleset(ctx context.Context, spec RulesetSpec, dry bool) (Outcome, error) {
	return call[Outcome](ctx, c, http.MethodPut, fmt.Sprintf("/v1/ruleset?dry_run=%t", dry), spec)
}

// Transact makes several changes: all of them or none.
func (c *Client) Transact(ctx context.Context, t Transaction) (Outcome, error) {
	return call[Outcome](ctx, c, http.MethodPost, "/v1/transaction", t)
}

// Zero has a service counted from now on, "" all.
func (c *Client) Zero(ctx context.Context, service string) error {
	path := "/v1/zero"
	if service != "" {
		path = servicePath(service) + "/zero"
	}
	_, err := call[None](ctx, c, http.MethodPost, path, nil)
	return err
}
