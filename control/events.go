package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// EventKind is a kind of event, or a set of them.
type EventKind uint32

// The kinds of events.
const (
	DecisionEvents EventKind = 1 << iota // how the server of a new connection was chosen
	StateEvents                          // connections that began, moved on or ended
	DropEvents                           // packets that went nowhere
	AdminEvents                          // changes that somebody made
	allEvents      = 1<<iota - 1
)

// kindNames are the kinds' names, in their order.
func kindNames() []string { return []string{"decision", "state", "drop", "admin"} }

// String returns the name of one kind.
func (k EventKind) String() string {
	for i, name := range kindNames() {
		if k == 1<<i {
			return name
		}
	}
	return "events"
}

// parseEventKinds reads the names of kinds; none are all.
func parseEventKinds(names []string) (EventKind, error) {
	var kinds EventKind
	for _, list := range names {
		for name := range strings.SplitSeq(list, ",") {
			i := slices.Index(kindNames(), name)
			if i < 0 {
				return 0, fmt.Errorf("%q is no kind of event: one of %s", name, strings.Join(kindNames(), ", "))
			}
			kinds |= 1 << i
		}
	}
	if kinds == 0 {
		return allEvents, nil
	}
	return kinds, nil
}

// Event is one thing that happened. The member of its kind says what.
type Event struct {
	Time     time.Time    `json:"time"`
	Kind     string       `json:"kind"` // decision, state, drop or admin; lost: events that the listener was too slow for
	Decision *Decision    `json:"decision,omitempty"`
	State    *StateChange `json:"state,omitempty"`
	Drop     *Drop        `json:"drop,omitempty"`
	Admin    *AdminChange `json:"admin,omitempty"`
	Lost     uint64       `json:"lost,omitempty"`

	Packet *CapturedPacket `json:"-"` // of captures
}

// Flow is from whom to whom a packet goes.
type Flow struct {
	Protocol        string `json:"protocol"`
	Source          string `json:"source"`
	SourcePort      uint16 `json:"source_port"`
	Destination     string `json:"destination"`
	DestinationPort uint16 `json:"destination_port"`
}

// Decision tells how the server of a new connection was chosen, with every
// candidate and why it won or lost.
type Decision struct {
	ID         uint64      `json:"id"`      // its number since the director's start
	Service    string      `json:"service"` // as ServiceID writes it
	Mark       uint32      `json:"mark,omitempty"`
	Flow       Flow        `json:"flow"`
	Found      string      `json:"found"`    // by what the service was found
	Template   bool        `json:"template"` // the client's template decided, not the scheduler
	Rule       string      `json:"rule"`     // by which the scheduler chose
	Tie        string      `json:"tie"`      // what decides between equals
	Picked     string      `json:"picked,omitempty"`
	Candidates []Candidate `json:"candidates"` // in the scheduler's order
}

// Candidate is how a scheduler judged one real server.
type Candidate struct {
	Server   string `json:"server"` // as ServerID writes it
	Weight   int64  `json:"weight"`
	Active   int64  `json:"active"`
	Inactive int64  `json:"inactive"`
	Score    *Score `json:"score,omitempty"` // of schedulers that have one; the least wins
	Picked   bool   `json:"picked"`
	Why      string `json:"why"`
}

// Score is a fraction.
type Score struct {
	Num int64 `json:"num"`
	Den int64 `json:"den"`
}

// StateChange tells that a connection began, moved on to another state, or ended:
// it expired, made way for others, or was removed.
type StateChange struct {
	Flow      Flow   `json:"flow"`    // from the client to the VIP
	Service   string `json:"service"` // as ServiceID writes it
	Server    string `json:"server"`  // as ServerID writes it
	Before    string `json:"before"`
	After     string `json:"after"`               // "" where it ended
	Direction string `json:"direction,omitempty"` // request or reply: whose packet it was
	Began     bool   `json:"began,omitempty"`
	Ended     bool   `json:"ended,omitempty"`
}

// Drop tells of a packet that went nowhere.
type Drop struct {
	Verdict string `json:"verdict"`
	Means   string `json:"means"`            // the verdict in words
	Advice  string `json:"advice,omitempty"` // what to do about it
	Service string `json:"service,omitempty"`
	Server  string `json:"server,omitempty"` // of the packet's connection
	// Decision is the number of the one that the packet led to.
	Decision uint64 `json:"decision,omitempty"`
	Flow     *Flow  `json:"flow,omitempty"`      // where the packet could be read
	Flags    string `json:"tcp_flags,omitempty"` // as tcpdump writes them: S, F, R, P and . for ACK
	Bytes    int    `json:"bytes"`
}

// AdminChange tells of a change that somebody made, or tried to.
type AdminChange struct {
	By      string   `json:"by"`
	Changes []string `json:"changes"`
	Refused string   `json:"refused,omitempty"` // why nothing changed
}

// Bounds of what listeners hold.
const (
	maxListeners = 32
	maxWaiting   = 1024    // events
	maxWeight    = 1 << 16 // of them together: 1 each, and 1 for each candidate
)

// Events hands what happens to those who listen. Who publishes never waits: what a
// listener has no room for is lost to it, and counted. The zero value, and nil, have
// no listener; it must not be copied.
type Events struct {
	mu        sync.Mutex // of changes
	listeners atomic.Pointer[[]*listener]
	wanted    atomic.Uint32
	observe   func(EventKind) // under mu
}

// NewEvents returns events of which observe is told, each time that changes, which
// kinds somebody listens for.
func NewEvents(observe func(EventKind)) *Events { return &Events{observe: observe} }

// Wanted are the kinds that somebody listens for.
func (e *Events) Wanted() EventKind {
	if e == nil {
		return 0
	}
	return EventKind(e.wanted.Load())
}

// Publish hands an event to those who listen for its kind. Each calls event when it
// comes to it, later and in a goroutine of its own; weight is what the event holds:
// 1, or more. Filters look at what it is about now, so that a listener's queue holds
// only what the listener asked for.
func (e *Events) Publish(kind EventKind, weight int, about *Subject, event func() Event) {
	if e.Wanted()&kind == 0 {
		return
	}
	for _, l := range *e.listeners.Load() {
		if l.kinds&kind != 0 && l.filter.chooses(kind, about) {
			l.offer(waiting{event, weight})
		}
	}
}

// Missed tells those who listen for a kind that n events of it were never there to
// publish.
func (e *Events) Missed(kind EventKind, n uint64) {
	if n > 0 && e.Wanted()&kind != 0 {
		for _, l := range *e.listeners.Load() {
			if l.kinds&kind != 0 {
				l.lost.Add(n)
			}
		}
	}
}

type waiting struct {
	event  func() Event
	weight int
}

// listener is one who listens.
type listener struct {
	filter EventFilter
	kinds  EventKind
	queue  chan waiting
	weight atomic.Int64 // of what is in queue
	lost   atomic.Uint64

	maxWeight int64
	snap      int // of captures: bytes of a packet
}

func (l *listener) offer(w waiting) {
	if l.weight.Add(int64(w.weight)) <= l.maxWeight || len(l.queue) == 0 {
		select {
		case l.queue <- w:
			return
		default:
		}
	}
	l.weight.Add(int64(-w.weight))
	l.lost.Add(1)
}

var errTooManyListeners = errors.New("too many listen already")

// listen adds a listener; stop takes it away again.
func (e *Events) listen(f EventFilter) (l *listener, stop func(), err error) {
	l = &listener{filter: f, kinds: f.kinds(), queue: make(chan waiting, maxWaiting), maxWeight: maxWeight}
	stop, err = e.join(l, maxListeners)
	return l, stop, err
}

// capture adds one who captures; stop takes it away again.
func (e *Events) capture(q CaptureQuery) (l *listener, stop func(), err error) {
	l = &listener{filter: EventFilter{Packets: q.Filter}, kinds: PacketEvents, queue: make(chan waiting, captureWaiting), maxWeight: captureWeight, snap: q.Snap}
	stop, err = e.join(l, maxCaptures)
	return l, stop, err
}

// Snap is how many bytes of a packet those who capture want at most; 0: nobody does.
func (e *Events) Snap() int {
	snap := 0
	if list := e.listeners.Load(); list != nil {
		for _, l := range *list {
			snap = max(snap, l.snap)
		}
	}
	return snap
}

// join adds a listener, if there are fewer than most of its kind.
func (e *Events) join(l *listener, most int) (stop func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []*listener
	if p := e.listeners.Load(); p != nil {
		list = slices.Clone(*p)
	}
	alike := 0
	for _, other := range list {
		if (other.snap > 0) == (l.snap > 0) {
			alike++
		}
	}
	if alike >= most {
		return nil, errTooManyListeners
	}
	e.set(append(list, l))
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.set(slices.DeleteFunc(slices.Clone(*e.listeners.Load()), func(x *listener) bool { return x == l }))
	}, nil
}

// set changes who listens. e.mu is held.
func (e *Events) set(list []*listener) {
	var wanted EventKind
	for _, l := range list {
		wanted |= l.kinds
	}
	e.listeners.Store(&list)
	e.wanted.Store(uint32(wanted))
	if e.observe != nil {
		e.observe(wanted)
	}
}
