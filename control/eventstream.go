package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Bounds of a stream of events.
const (
	heartbeat     = 15 * time.Second // between signs of life
	streamTimeout = 30 * time.Second // for a listener to take what is sent
	maxEventLine  = 16 << 20         // bytes of an event: of a service with very many servers
)

// streamEvents answers GET /v1/events with server-sent events (of the HTML
// standard): the kind as event, a number as id, and the Event's JSON as data.
func streamEvents(a *api, w http.ResponseWriter, r *http.Request) {
	f, err := ParseEventFilter(r.URL.Query())
	if err == nil && f.Verdicts != nil {
		err = f.CheckVerdicts(verdictNames(a.Status()))
	}
	if wrong := (*ParameterError)(nil); errors.As(err, &wrong) {
		writeProblem(a, w, r, faultAt(http.StatusBadRequest, "?"+wrong.Name, wrong.Value, wrong.Detail))
		return
	}
	l, stop, err := a.Events().listen(f)
	if err != nil {
		p := problem(http.StatusServiceUnavailable, "%d listen to events already: end one of them", maxListeners)
		writeProblem(a, w, r, p)
		return
	}
	defer stop()
	s := &eventStream{w: w, control: http.NewResponseController(w)}
	_ = s.control.SetReadDeadline(time.Time{}) // the request was read; the answer has no end
	w.Header().Set("Content-Type", mediaEvents)
	w.Header().Set("Cache-Control", "no-store")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	alive := s.send(": events of pktdirector\n\n") && s.flush()
	for alive {
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			alive = s.lost(l) && s.send(": alive\n\n") && s.flush()
		case next := <-l.queue:
			alive = s.event(l, next)
			for range len(l.queue) { // what waits goes out together
				alive = alive && s.event(l, <-l.queue)
			}
			// What was lost came when the queue was full: after what was in it.
			alive = alive && s.lost(l) && s.flush()
		}
	}
}

// eventStream writes to one listener.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	id      uint64
}

// send reports whether the listener is still there.
func (s *eventStream) send(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(streamTimeout))
	_, err := s.w.Write([]byte(text))
	return err == nil
}

func (s *eventStream) flush() bool { return s.control.Flush() == nil }

func (s *eventStream) event(l *listener, next waiting) bool {
	e := next.event()
	l.weight.Add(int64(-next.weight))
	return s.write(e)
}

func (s *eventStream) write(e Event) bool {
	data, err := json.Marshal(e)
	if err != nil {
		return false // plain values: cannot happen
	}
	s.id++
	return s.send(fmt.Sprintf("event: %s\nid: %d\ndata: %s\n\n", e.Kind, s.id, data))
}

// lost tells how many events the listener was too slow for.
func (s *eventStream) lost(l *listener) bool {
	n := l.lost.Swap(0)
	return n == 0 || s.write(Event{Time: time.Now(), Kind: "lost", Lost: n})
}

func verdictNames(s Status) (names []string) {
	for _, v := range s.Verdicts {
		names = append(names, v.Name)
	}
	return names
}

// EventKinds are the names of the kinds of events.
func EventKinds() []string { return kindNames() }

// Events calls yield with each event that the filter chooses until it returns false or
// ctx ends. An event of kind lost says that some are missing.
func (c *Client) Events(ctx context.Context, f EventFilter, yield func(Event) bool) error {
	path := "/v1/events"
	if query := f.Values().Encode(); query != "" {
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
	lines.Buffer(nil, maxEventLine)
	for lines.Scan() {
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !is {
			continue // a comment, a name, or an empty line
		}
		var e Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("director at %s: an event: %w", c.socket, err)
		}
		if !yield(e) {
			return nil
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("director at %s: events: %w", c.socket, err)
	}
	return ctx.Err()
}
