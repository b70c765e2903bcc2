package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"
)

// maxProblem is how many bytes of a refusal are read.
const maxProblem = 1 << 16

// Client asks a running director through its API. Its errors wrap a *Problem
// where the director refused.
type Client struct {
	socket string // as the director was named
	base   string // of URLs
	token  string
	http   *http.Client
}

// NewClient returns a client for the director whose socket is at path.
func NewClient(path string) *Client {
	return &Client{socket: path, base: "http://director", http: &http.Client{Transport: unixTransport(path)}}
}

// Status reads the director's status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/status", nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	s := &Status{}
	if err := json.NewDecoder(body).Decode(s); err != nil {
		return nil, fmt.Errorf("director at %s: status: %w", c.socket, err)
	}
	if s.Version != APIVersion {
		return nil, fmt.Errorf("director at %s: speaks version %d of the status API, this program %d: use the program it was started with",
			c.socket, s.Version, APIVersion)
	}
	return s, nil
}

func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", mediaJSON)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.ask(req)
	switch {
	case err != nil && isGone(err):
		return nil, fmt.Errorf("no director listens at %s: start one with \"pktdirector run\", or name its socket with --control (%w)", c.socket, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("director at %s: only the user who started it may ask (%w)", c.socket, err)
	case err != nil:
		return nil, fmt.Errorf("director at %s: %w", c.socket, err)
	case resp.StatusCode >= 300:
		why, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // the status says enough
		resp.Body.Close()
		p := &Problem{}
		if resp.Header.Get("Content-Type") == mediaProblem && json.Unmarshal(why, p) == nil && p.Detail != "" {
			return nil, fmt.Errorf("director at %s: %w", c.socket, p)
		}
		return nil, fmt.Errorf("director at %s: %s %s: %s: %s", c.socket, method, path, resp.Status, bytes.TrimSpace(why))
	}
	return resp.Body, nil
}

// A director that has handed over to a new program refuses what comes to it: whoever asks
// again reaches the new one, at once or soon.
const (
	askAgain      = 100 * time.Millisecond
	askAgainTimes = 100
)

// ask makes a request, again where the director has handed over.
func (c *Client) ask(req *http.Request) (*http.Response, error) {
	for range askAgainTimes {
		resp, err := c.http.Do(req)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || req.Body != nil && req.GetBody == nil {
			return resp, err
		}
		resp.Body.Close()
		select {
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		case <-time.After(askAgain):
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
	return c.http.Do(req)
}
