package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"pktdirector/testbed/traffic"
)

// The client's requests are made by the program's own "lab client" commands,
// on the client's host.

// counted is what those commands print of connections and datagrams.
type counted struct {
	Servers map[string]int `json:"servers"`
	Error   string         `json:"error"`
}

// held are connections that a client keeps open.
type held struct {
	servers map[string]int
	stdin   io.Closer
	cmd     *exec.Cmd
}

// holdOpen opens n connections to the target and keeps them until close.
func (l *Lab) holdOpen(ctx context.Context, target string, n int, timeout time.Duration) (*held, error) {
	cmd := exec.CommandContext(ctx, l.opts.Program, "lab", "client", "open", target,
		"-n", strconv.Itoa(n), "--timeout", timeout.String(), "--hold")
	h := &held{cmd: cmd}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return h, err
	}
	h.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return h, err
	}
	if err := l.Start(l.client(), cmd); err != nil {
		return h, err
	}
	var c counted
	err = json.NewDecoder(stdout).Decode(&c)
	h.servers = c.Servers
	if err == nil && c.Error != "" {
		err = errors.New(c.Error)
	}
	if err != nil {
		stdin.Close()
		cmd.Wait()
	}
	return h, err
}

// close closes the connections.
func (h *held) close() error {
	h.stdin.Close()
	return h.cmd.Wait()
}

// echo sends n datagrams and counts the answers by server.
func (l *Lab) echo(ctx context.Context, target string, n int, timeout time.Duration) (map[string]int, error) {
	out, err := l.Output(ctx, l.client(), "lab", "client", "echo", target, "-n", strconv.Itoa(n), "--timeout", timeout.String())
	var c counted
	if jsonErr := json.Unmarshal([]byte(out), &c); jsonErr == nil && c.Error != "" {
		err = errors.New(c.Error)
	}
	return c.Servers, err
}

// Transfer makes uploads or downloads of n bytes, several at once, and returns
// them when all arrived as they were sent.
func (l *Lab) Transfer(ctx context.Context, kind string, n int64, parallel int) ([]traffic.Transfer, error) {
	out, err := l.Output(ctx, l.client(), "lab", "client", kind, l.Topology.Target(l.Topology.HTTP),
		"--bytes", strconv.FormatInt(n, 10), "--parallel", strconv.Itoa(parallel), "--timeout", answerTimeout.String())
	if err != nil {
		return nil, err
	}
	var all []traffic.Transfer
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("%s: %q: %w", kind, strings.TrimSpace(out), err)
	}
	if len(all) != parallel {
		return all, fmt.Errorf("%s: %d of %d came about", kind, len(all), parallel)
	}
	for _, t := range all {
		if !t.Equal(n) {
			return all, fmt.Errorf("%s through %s: SHA-256 %s of %d bytes was sent, %s of %d arrived", kind, t.Server, t.Sent, n, t.Arrived, t.Bytes)
		}
	}
	return all, nil
}

func (l *Lab) client() string { return l.Topology.With(Client)[0].Name }
