package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Explain tells a connection's story, or what would become of one.
func (c *Client) Explain(ctx context.Context, q ExplainQuery) (*Story, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/explain?"+q.Values().Encode(), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	s := &Story{}
	if err := json.NewDecoder(body).Decode(s); err != nil {
		return nil, fmt.Errorf("director at %s: a story: %w", c.socket, err)
	}
	return s, nil
}
