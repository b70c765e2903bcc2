package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Client asks a lab's virtual services.
type Client struct {
	Target  string        // VIP and port, "203.0.113.80:80"
	Timeout time.Duration // for a connection or an answer, not for a transfer
}

// Transfer is an upload or download that ended.
type Transfer struct {
	Server  string        `json:"server"`
	Bytes   int64         `json:"bytes"`
	Sent    string        `json:"sha256_sent"`
	Arrived string        `json:"sha256_arrived"`
	Seconds float64       `json:"seconds"`
	Retrans uint32        `json:"retransmissions"` // by the client's end
	Elapsed time.Duration `json:"-"`
}

// Equal reports whether n bytes arrived as they were sent.
func (t Transfer) Equal(n int64) bool {
	return t.Bytes == n && t.Sent == t.Arrived && t.Sent != ""
}

// Connections are open TCP connections whose server has given its name.
type Connections struct {
	client Client
	conns  []net.Conn
	names  []string       // of their servers
	Server map[string]int `json:"servers"` // connections each server got
}

// Open opens n connections one after another, asks each server's name and
// keeps them open. Those opened before an error are returned with it.
func (c Client) Open(ctx context.Context, n int) (*Connections, error) {
	all := &Connections{client: c, Server: map[string]int{}}
	for i := range n {
		conn, err := c.dial(ctx)
		if err != nil {
			return all, fmt.Errorf("connection %d of %d: %w", i+1, n, err)
		}
		all.conns = append(all.conns, conn)
		name, err := c.name(conn)
		if err != nil {
			return all, fmt.Errorf("connection %d of %d from %s: %w", i+1, n, conn.LocalAddr(), err)
		}
		all.names = append(all.names, name)
		all.Server[name]++
	}
	return all, nil
}

// Again asks each connection's server for its name again. It has to be the same.
func (cs *Connections) Again() error {
	var errs []error
	for i, was := range cs.names {
		name, err := cs.client.name(cs.conns[i])
		if err == nil && name != was {
			err = fmt.Errorf("is with server %s now, was with %s", name, was)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("connection from %s: %w", cs.conns[i].LocalAddr(), err))
		}
	}
	return errors.Join(errs...)
}

// Addrs returns the client's ends.
func (cs *Connections) Addrs() []netip.AddrPort {
	var all []netip.AddrPort
	for _, c := range cs.conns {
		all = append(all, c.LocalAddr().(*net.TCPAddr).AddrPort())
	}
	return all
}

// Close closes the connections.
func (cs *Connections) Close() error {
	var errs []error
	for _, c := range cs.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Upload sends the stream of that seed and compares what the server says
// arrived.
func (c Client) Upload(ctx context.Context, seed uint64, n int64) (t Transfer, err error) {
	d := newDigest()
	body := io.TeeReader(Stream(seed, n), d)
	resp, end, err := c.transfer(ctx, http.MethodPut, "/upload", body, n)
	if err != nil {
		return t, fmt.Errorf("upload: %w", err)
	}
	defer end(&t)
	var got Uploaded
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return t, fmt.Errorf("upload: answer: %w", err)
	}
	t.Server, t.Bytes, t.Sent, t.Arrived = got.Server, got.Bytes, d.String(), got.SHA256
	return t, nil
}

// Download asks for the stream of that seed and compares what arrives with
// what the server says it sent.
func (c Client) Download(ctx context.Context, seed uint64, n int64) (t Transfer, err error) {
	resp, end, err := c.transfer(ctx, http.MethodGet, fmt.Sprintf("/download?bytes=%d&seed=%d", n, seed), nil, 0)
	if err != nil {
		return t, fmt.Errorf("download: %w", err)
	}
	defer end(&t)
	d := newDigest()
	_, err = copyChunks(d, resp.Body)
	t.Server, t.Bytes, t.Arrived = resp.Header.Get(headerServer), d.bytes, d.String()
	if err != nil {
		return t, fmt.Errorf("download: after %d bytes: %w", d.bytes, err)
	}
	t.Sent = resp.Trailer.Get(trailerSHA256)
	return t, nil
}

// Parallel runs n transfers at once and returns all that ended well, with the
// errors of the others.
func Parallel(n int, one func(i int) (Transfer, error)) ([]Transfer, error) {
	all := make([]Transfer, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { all[i], errs[i] = one(i) })
	}
	wg.Wait()
	var good []Transfer
	for i, t := range all {
		if errs[i] == nil {
			good = append(good, t)
		}
	}
	return good, errors.Join(errs...)
}

// Echo sends n datagrams, each from a port of its own, and counts the answers
// by server.
func (c Client) Echo(ctx context.Context, n int) (map[string]int, error) {
	servers := map[string]int{}
	for i := range n {
		name, err := c.echo(ctx, fmt.Sprintf("datagram %d", i+1))
		if err != nil {
			return servers, fmt.Errorf("datagram %d of %d: %w", i+1, n, err)
		}
		servers[name]++
	}
	return servers, nil
}

func (c Client) echo(ctx context.Context, text string) (server string, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", c.Target)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(c.Timeout))
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	buf := make([]byte, 2048)
	k, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	name, rest, ok := strings.Cut(string(buf[:k]), ": ")
	if !ok || rest != text {
		return "", fmt.Errorf("sent %q, the answer is %q", text, buf[:k])
	}
	return name, nil
}

func (c Client) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{Timeout: c.Timeout}).DialContext(ctx, "tcp", c.Target)
}

// name asks the server's name and leaves the connection open.
func (c Client) name(conn net.Conn) (string, error) {
	conn.SetDeadline(time.Now().Add(c.Timeout))
	defer conn.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", c.Target); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("answer %s: %s", resp.Status, text)
	}
	return strings.TrimSpace(string(text)), nil
}

// transfer sends one request over a connection of its own. end closes it and
// notes in the Transfer what it cost.
func (c Client) transfer(ctx context.Context, method, path string, body io.Reader, n int64) (resp *http.Response, end func(*Transfer), err error) {
	start := time.Now()
	var conn net.Conn
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var err error
			conn, err = c.dial(ctx)
			return conn, err
		},
		WriteBufferSize: chunk, ReadBufferSize: chunk,
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Target+path, body)
	if err != nil {
		return nil, nil, err
	}
	req.ContentLength = n
	resp, err = transport.RoundTrip(req)
	if err != nil {
		transport.CloseIdleConnections()
		return nil, nil, err
	}
	end = func(t *Transfer) {
		t.Elapsed = time.Since(start)
		t.Seconds = t.Elapsed.Seconds()
		t.Retrans = retransmissions(conn)
		resp.Body.Close()
		transport.CloseIdleConnections()
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		end(new(Transfer))
		return nil, nil, fmt.Errorf("answer %s: %s", resp.Status, text)
	}
	return resp, end, nil
}
