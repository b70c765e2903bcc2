package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"pktdirector/capture/filter"
)

// MaxSnap is the longest packet that a capture has whole, in bytes: as tcpdump's.
const MaxSnap = 262144

// CaptureQuery asks for a capture.
type CaptureQuery struct {
	Filter *filter.Filter
	Snap   int // bytes of a frame at most; 0: MaxSnap
}

// CaptureParameters are the parameters of a CaptureQuery.
func CaptureParameters() []Parameter {
	return []Parameter{
		{"filter", "packets that an expression of tcpdump chooses, as they came or as they left"},
		{"snaplen", fmt.Sprintf("bytes of a packet at most: 1 to %d, which is also where it is not given", MaxSnap)},
	}
}

// ParseCaptureQuery reads what Values writes. Errors are *ParameterErrors.
func ParseCaptureQuery(v url.Values) (CaptureQuery, error) {
	q := CaptureQuery{Snap: MaxSnap}
	for _, name := range sortedKeys(v) {
		text := v.Get(name)
		var err error
		switch name {
		case "filter":
			q.Filter, err = filter.Parse(text)
		case "snaplen":
			if n, wrong := strconv.Atoi(text); wrong != nil || n < 1 || n > MaxSnap {
				err = fmt.Errorf("write a number of bytes from 1 to %d", MaxSnap)
			} else {
				q.Snap = n
			}
		default:
			err = errors.New("no such parameter")
		}
		if err == nil && len(v[name]) > 1 {
			err = errors.New("given more than once")
		}
		if err != nil {
			return q, &ParameterError{name, text, err.Error()}
		}
	}
	return q, nil
}

// Values writes the query as ParseCaptureQuery reads it.
func (q CaptureQuery) Values() url.Values {
	v := url.Values{}
	if q.Filter != nil {
		v.Set("filter", q.Filter.String())
	}
	if q.Snap != 0 && q.Snap != MaxSnap {
		v.Set("snaplen", strconv.Itoa(q.Snap))
	}
	return v
}

// CapturedPacket is a packet of a capture, or, where Tick is set, a sign of life.
type CapturedPacket struct {
	Time     int64    `json:"time"`           // ns since 1970-01-01 UTC
	ID       uint64   `json:"id,omitempty"`   // the same for a packet as it came and as it left
	Outgoing bool     `json:"outgoing"`       // as it left
	Link     string   `json:"link,omitempty"` // name of the interface
	Side     string   `json:"side,omitempty"` // client or server; "" for what is of no connection
	Raw      bool     `json:"raw"`            // without an Ethernet header
	Data     []byte   `json:"data,omitempty"` // the frame, or its beginning
	Length   int      `json:"length"`         // bytes of the whole frame
	Comments []string `json:"comments,omitempty"`
	// Lost is how many packets were not captured since the line before: they came
	// faster than they were taken.
	Lost uint64 `json:"lost,omitempty"`
	// Tick: not a packet. All that happened up to its time and was captured has been
	// told, four times a second.
	Tick bool `json:"tick"`
}

// captureTick is how often a capture shows that it lives.
const captureTick = 250 * time.Millisecond

// captureFlush is how much is gathered for one who captures.
const captureFlush = 64 << 10

// streamCapture answers GET /v1/capture: one CapturedPacket a line.
func streamCapture(a *api, w http.ResponseWriter, r *http.Request) {
	q, err := ParseCaptureQuery(r.URL.Query())
	if wrong := (*ParameterError)(nil); errors.As(err, &wrong) {
		writeProblem(a, w, r, faultAt(http.StatusBadRequest, "?"+wrong.Name, wrong.Value, wrong.Detail))
		return
	}
	l, stop, err := a.Events().capture(q)
	if err != nil {
		writeProblem(a, w, r, problem(http.StatusServiceUnavailable, "%d capture already: end one of them", maxCaptures))
		return
	}
	defer stop()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", mediaLines)
	w.Header().Set("Cache-Control", "no-store")
	b := bufio.NewWriterSize(w, captureFlush)
	lines := json.NewEncoder(b)
	tell := func(c *CapturedPacket) bool {
		_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
		c.Lost = l.lost.Swap(0)
		return lines.Encode(c) == nil
	}
	flush := func() bool { return b.Flush() == nil && control.Flush() == nil }
	ticks := time.NewTicker(captureTick)
	defer ticks.Stop()
	alive := tell(&CapturedPacket{Time: time.Now().UnixNano(), Tick: true}) && flush()
	for alive {
		select {
		case <-r.Context().Done():
			return
		case <-ticks.C:
			now := time.Now().UnixNano()
			for range len(l.queue) {
				alive = alive && tell(l.take(<-l.queue))
			}
			alive = alive && tell(&CapturedPacket{Time: now, Tick: true}) && flush()
		case next := <-l.queue:
			alive = tell(l.take(next))
			if len(l.queue) == 0 {
				alive = alive && flush()
			}
		}
	}
}

// take makes a packet of what waited.
func (l *listener) take(next waiting) *CapturedPacket {
	defer l.weight.Add(int64(-next.weight))
	return next.event().Packet
}

// Capture calls yield with each packet, and with ticks, until it returns false, ctx
// ends, or the director does, which is nil.
func (c *Client) Capture(ctx context.Context, q CaptureQuery, yield func(*CapturedPacket) bool) error {
	path := "/v1/capture"
	if query := q.Values().Encode(); query != "" {
		path += "?" + query
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 2*MaxSnap)
	for lines.Scan() {
		var p CapturedPacket
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return fmt.Errorf("director at %s: a captured packet: %w", c.socket, err)
		}
		if p.Time < 0 || len(p.Data) > MaxSnap {
			return fmt.Errorf("director at %s: a captured packet of time %d and %d bytes cannot be", c.socket, p.Time, len(p.Data))
		}
		if !yield(&p) {
			return nil
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("director at %s: capture: %w", c.socket, err)
	}
	return ctx.Err()
}
