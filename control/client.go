package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"
)

// Client asks a running director through its status API.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client for the director whose socket is at path.
func NewClient(path string) *Client {
	return &Client{socket: path, http: &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				d := net.Dialer{Timeout: 5 * time.Second}
				return d.DialContext(ctx, "unix", path)
			},
		},
	}}
}

// Status reads the director's status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	body, err := c.get(ctx, "/v1/status")
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

// Connections reads the director's connection table.
func (c *Client) Connections(ctx context.Context) ([]Connection, error) {
	body, err := c.get(ctx, "/v1/connections")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var conns []Connection
	for d := json.NewDecoder(body); ; {
		var one Connection
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF):
			return conns, nil
		case err != nil:
			return nil, fmt.Errorf("director at %s: connections: %w", c.socket, err)
		}
		conns = append(conns, one)
	}
}

func (c *Client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://director"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	switch {
	case err != nil && isGone(err):
		return nil, fmt.Errorf("no director listens at %s: start one with \"pktdirector run\", or name its socket with --control (%w)", c.socket, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("director at %s: only the user who started it may ask (%w)", c.socket, err)
	case err != nil:
		return nil, fmt.Errorf("director at %s: %w", c.socket, err)
	case resp.StatusCode != http.StatusOK:
		resp.Body.Close()
		return nil, fmt.Errorf("director at %s: GET %s: %s", c.socket, path, resp.Status)
	}
	return resp.Body, nil
}
