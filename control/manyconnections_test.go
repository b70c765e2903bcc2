package control_test

import (
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pktdirector/conntrack"
	"pktdirector/control"
)

// many is a Source of very many connections that none holds: they are made as they
// are asked for.
type many struct {
	fixed
	n    int
	each func(i int)
}

func (m *many) Connections(_ conntrack.Filter, yield func(control.Connection) bool) {
	c := example().conns[0]
	for i := range m.n {
		m.each(i)
		c.ClientPort = uint16(i)
		if !yield(c) {
			return
		}
	}
}

// Ipvsadm has the director list them.
func (m *many) Ipvsadm(l control.Line) control.Answer {
	return (&control.Commander{Connections: func(yield func(control.Connection) bool) { m.Connections(conntrack.Filter{}, yield) }}).Do(l.Args, l.Stdin)
}

// Connections are shown as they are met: the director, and who prints them, hold a few
// of them.
func TestListingTakesNoMemoryByTheConnection(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n /= 4
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var before, most uint64
	source := &many{n: n, each: func(i int) {
		if i%(n/20) == 0 {
			most = max(most, heap())
		}
	}}
	path := filepath.Join(t.TempDir(), "s")
	defer serve(t, path, source)()
	const bound = 8 << 20
	count := func(name string, met int, err error) {
		t.Helper()
		if err != nil || met != n || most > before+bound {
			t.Errorf("%s: %d of %d connections, error %v, %d bytes more than before", name, met, n, err, int64(most)-int64(before))
		}
	}

	before, most = heap(), 0
	resp, err := unixClient(path).Get("http://director/v1/connections")
	if err != nil {
		t.Fatal(err)
	}
	lines := lineCounter(0)
	_, err = io.Copy(&lines, resp.Body)
	resp.Body.Close()
	count("GET /v1/connections", int(lines), err)

	before, most = heap(), 0
	lines = 0
	err = control.WriteConnections(&lines, control.NewClient(path).SelectConnections(t.Context(), control.ConnQuery{}))
	count("as ipvsadm -Lcn", int(lines)-2, err) // its heading has two lines

	before, most = heap(), 0
	lines = 0
	_, err = control.WriteConnectionTable(&lines, control.NewClient(path).SelectConnections(t.Context(), control.ConnQuery{}))
	count("as list --wide", int(lines)-1, err)
}

// What POST /v1/ipvsadm answers is one value, so it ends where it gets too large, and
// says where more can be had.
func TestAnIpvsadmListingIsBounded(t *testing.T) {
	met := 0
	source := &many{n: 1_000_000, each: func(int) { met++ }}
	path := filepath.Join(t.TempDir(), "s")
	defer serve(t, path, source)()
	a, err := control.NewClient(path).Ipvsadm(t.Context(), control.Line{Args: []string{"-Lcn"}})
	if err != nil || a.Code != 1 || a.Stdout != "" || !strings.Contains(a.Stderr, "GET /v1/connections") {
		t.Errorf("%v, exit code %d, %d bytes, %q", err, a.Code, len(a.Stdout), a.Stderr)
	}
	if met == 0 || met > source.n/2 {
		t.Errorf("%d connections were listed before it ended", met)
	}
	source.n = 1000
	a, err = control.NewClient(path).Ipvsadm(t.Context(), control.Line{Args: []string{"-Lcn"}})
	if err != nil || a.Code != 0 || strings.Count(a.Stdout, "\n") != 1002 {
		t.Errorf("a thousand: %v, exit code %d, %q", err, a.Code, a.Stderr)
	}
}

// lineCounter counts the lines that are written to it.
type lineCounter int

func (l *lineCounter) Write(p []byte) (int, error) {
	*l += lineCounter(strings.Count(string(p), "\n"))
	return len(p), nil
}
