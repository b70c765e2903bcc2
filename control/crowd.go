package control

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// maxConns is how many connections each listener of the API holds at once.
const maxConns = 256

// crowd is a listener whose connections are bounded in number. Who says little, and
// slowly, keeps nobody out: where there is no room, the one that has waited longest
// without asking anything makes room. Whoever has asked, over TCP with a certificate or
// token and with the whole of the request's body, stays until it is answered.
type crowd struct {
	net.Listener
	most int

	mu     sync.Mutex
	silent list.List // of *guest: the one that has been so for longest is the first
	asking int
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	crowd *crowd
	// Both under crowd.mu; with neither it is closed or about to be.
	place  *list.Element // among the silent
	asking bool
}

// Accept implements net.Listener.
func (l *crowd) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g := &guest{Conn: c, crowd: l}
		if l.enter(g) {
			return g, nil
		}
		c.Close()
	}
}

// enter finds a place for a guest; there is none where all others are asking.
func (l *crowd) enter(g *guest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.silent.Len()+l.asking >= l.most {
		first := l.silent.Front()
		if first == nil {
			return false
		}
		leaving := l.silent.Remove(first).(*guest)
		leaving.place = nil
		leaving.Conn.Close() // who serves it hears of that by an error
	}
	g.place = l.silent.PushBack(g)
	return true
}

// ask marks a guest as one that has asked something. A nil guest is that of a test
// without connections.
func (g *guest) ask() {
	if g == nil {
		return
	}
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	if g.place != nil {
		g.crowd.silent.Remove(g.place)
		g.place, g.asking = nil, true
		g.crowd.asking++
	}
}

// rest marks a guest as one that was answered.
func (g *guest) rest() {
	if g == nil {
		return
	}
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	if g.asking {
		g.crowd.asking--
		g.asking, g.place = false, g.crowd.silent.PushBack(g)
	}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.rest()
	g.crowd.mu.Lock()
	if g.place != nil {
		g.crowd.silent.Remove(g.place)
		g.place = nil
	}
	g.crowd.mu.Unlock()
	return g.Conn.Close()
}

// guestKey is that of the guest in a request's context.
type guestKey struct{}

// withGuest is an http.Server's ConnContext: requests know their guest, and by a unix
// socket who that is.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	g, ok := c.(*guest)
	if !ok {
		return ctx
	}
	ctx = context.WithValue(ctx, guestKey{}, g)
	if u, ok := g.Conn.(*net.UnixConn); ok {
		ctx = context.WithValue(ctx, callerKey{}, peerName(u))
	}
	return ctx
}

func guestOf(r *http.Request) *guest {
	g, _ := r.Context().Value(guestKey{}).(*guest)
	return g
}
