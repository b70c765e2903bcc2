package control_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pktdirector/control"
)

// adminEvent is an event that says words.
func adminEvent(words string) func() control.Event {
	return func() control.Event {
		return control.Event{Time: time.Unix(1, 0), Kind: "admin", Admin: &control.AdminChange{By: "a test", Changes: []string{words}}}
	}
}

// filterOf is a filter of one parameter; none where it is empty.
func filterOf(t *testing.T, name, value string) control.EventFilter {
	t.Helper()
	if value == "" {
		return control.EventFilter{}
	}
	f, err := control.ParseEventFilter(url.Values{name: {value}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// listenTo reads events of kinds into a channel until the test ends or stop is
// called; it returns when the director knows of the listener.
func listenTo(t *testing.T, l *live, c *control.Client, kinds ...string) (events <-chan control.Event, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ch := make(chan control.Event)
	var wg sync.WaitGroup
	before := l.events.Wanted()
	wg.Go(func() {
		err := c.Events(ctx, filterOf(t, "kind", strings.Join(kinds, ",")), func(e control.Event) bool {
			select {
			case ch <- e:
				return true
			case <-ctx.Done():
				return false
			}
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("events: %v", err)
		}
		close(ch)
	})
	for l.events.Wanted() == before {
		time.Sleep(time.Millisecond)
	}
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return ch, stop
}

func TestEventsReachThoseWhoListenForTheirKind(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	l, c, _ := serveLive(t)
	if l.events.Wanted() != 0 {
		t.Errorf("with nobody there: %b", l.events.Wanted())
	}
	l.events.Publish(control.AdminEvents, 1, &control.Subject{}, func() control.Event { t.Error("an event was made that nobody listens for"); return control.Event{} })
	admins, stopAdmins := listenTo(t, l, c, "admin")
	all, stopAll := listenTo(t, l, c)
	l.events.Publish(control.DropEvents, 1, &control.Subject{}, func() control.Event {
		return control.Event{Kind: "drop", Drop: &control.Drop{Verdict: "no_service", Bytes: 40, Flags: "S"}}
	})
	l.events.Publish(control.AdminEvents, 1, &control.Subject{}, adminEvent("one"))
	if e := <-all; e.Kind != "drop" || e.Drop == nil || e.Drop.Verdict != "no_service" {
		t.Errorf("got %+v", e)
	}
	for _, ch := range []<-chan control.Event{all, admins} {
		if e := <-ch; e.Kind != "admin" || e.Admin == nil || e.Admin.Changes[0] != "one" || !e.Time.Equal(time.Unix(1, 0)) {
			t.Errorf("got %+v", e)
		}
	}
	stopAll()
	for l.events.Wanted() != control.AdminEvents {
		time.Sleep(time.Millisecond)
	}
	stopAdmins()
	for l.events.Wanted() != 0 {
		time.Sleep(time.Millisecond)
	}
}

// TestASlowListenerLosesAndIsTold: who publishes never waits, and what the listener
// is told adds up.
func TestASlowListenerLosesAndIsTold(t *testing.T) {
	l, c, _ := serveLive(t)
	ch, _ := listenTo(t, l, c, "admin")
	const n = 50_000
	long := strings.Repeat("x", 200)
	began := time.Now()
	for range n {
		l.events.Publish(control.AdminEvents, 1, &control.Subject{}, adminEvent(long)) // nobody reads ch
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("publishing took %v", took)
	}
	l.events.Missed(control.AdminEvents, 7)
	l.events.Missed(control.StateEvents, 7)
	var got, lost uint64
	for deadline := time.After(20 * time.Second); got+lost < n+7; {
		select {
		case e := <-ch:
			if lost += e.Lost; e.Kind != "lost" {
				got++
			}
		case <-deadline:
			t.Fatalf("%d events and %d lost of %d: the rest was never told", got, lost, n+7)
		}
	}
	if got < 1024 || lost == 0 || got+lost != n+7 {
		t.Errorf("%d events and %d lost of %d", got, lost, n+7)
	}
}

// TestAListenerHoldsLittle: events that are large count for more.
func TestAListenerHoldsLittle(t *testing.T) {
	l, c, _ := serveLive(t)
	ch, _ := listenTo(t, l, c, "decision")
	made := make(chan struct{}, 1000)
	for range 1000 {
		l.events.Publish(control.DecisionEvents, 10_000, &control.Subject{}, func() control.Event {
			made <- struct{}{}
			return control.Event{Kind: "decision", Decision: &control.Decision{Rule: strings.Repeat("x", 100_000)}}
		})
	}
	var got, lost uint64
	for got+lost < 1000 {
		if e := <-ch; e.Kind == "lost" {
			lost += e.Lost
		} else {
			got++
		}
	}
	// 6 wait at most; the rest passed while this was going on, into the socket.
	if lost < 500 {
		t.Errorf("%d were kept, %d lost", got, lost)
	}
}

func TestTooManyListenersAreRefused(t *testing.T) {
	l, c, _ := serveLive(t)
	for range 32 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		started := make(chan struct{}, 1)
		wg.Go(func() {
			_ = c.Events(ctx, control.EventFilter{}, func(control.Event) bool {
				select {
				case started <- struct{}{}:
				default:
				}
				return true
			})
		})
		t.Cleanup(func() { cancel(); wg.Wait() })
		for listening := false; !listening; {
			l.events.Publish(control.AdminEvents, 1, &control.Subject{}, adminEvent("hello"))
			select {
			case <-started:
				listening = true
			case <-time.After(time.Millisecond):
			}
		}
	}
	err := c.Events(t.Context(), control.EventFilter{}, func(control.Event) bool { return true })
	if p := (*control.Problem)(nil); !errors.As(err, &p) || p.Status != 503 || !strings.Contains(p.Detail, "32 listen to events already") {
		t.Errorf("the 33rd: %v", err)
	}
}

// TestAStreamEndsWithTheServer: a director stops although somebody listens.
func TestAStreamEndsWithTheServer(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	l := newLive()
	path := t.TempDir() + "/d.sock"
	stop := serve(t, path, l)
	ended := make(chan error, 1)
	go func() {
		ended <- control.NewClient(path).Events(t.Context(), control.EventFilter{}, func(control.Event) bool { return true })
	}()
	for l.events.Wanted() == 0 {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("stopping took %v", took)
	}
	<-ended
}

// TestPublishingToNobodyCostsNothing.
func TestPublishingToNobodyCostsNothing(t *testing.T) {
	events := control.NewEvents(nil)
	drop := control.Drop{Verdict: "x"}
	if n := testing.AllocsPerRun(100, func() {
		if events.Wanted()&control.DropEvents != 0 {
			events.Publish(control.DropEvents, 1, &control.Subject{}, func() control.Event { return control.Event{Drop: &drop} })
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
