package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// Scenario is a script with, where recorded, what each of its events led to.
type Scenario struct {
	ID     string             `json:"id"`
	Title  string             `json:"title"`
	Sysctl map[string]Setting `json:"sysctl,omitempty"` // net.ipv4.vs.* before the first event
	// MTU of the director's link to the real servers; 0: 1500.
	MTU    int            `json:"mtu_rs,omitempty"`
	Marks  []Mark         `json:"marks,omitempty"` // the first that matches wins
	Local  []netip.Prefix `json:"local,omitempty"` // the director's, besides the VIPs
	Events []*Event       `json:"events"`
}

// Mark is a rule that gives packets from clients a firewall mark.
type Mark struct {
	Src   []netip.Prefix `json:"src,omitempty"` // any of them; none: all
	Dst   []netip.Prefix `json:"dst,omitempty"`
	Proto string         `json:"proto,omitempty"`
	DPort uint16         `json:"dport,omitempty"`
	Mark  uint32         `json:"mark"`
}

// Event is one step of a scenario. Which fields it has depends on Op.
type Event struct {
	Op string `json:"op"`
	// T is when it happens, in seconds since the scenario began: when a
	// packet is sent, when a command has returned, when a bulk's last packet
	// is sent, when a sleep is over.
	T *float64 `json:"t,omitempty"`

	Args    string  `json:"args,omitempty"`    // ipvsadm, route
	Stdin   string  `json:"stdin,omitempty"`   // ipvsadm -R
	Seconds float64 `json:"seconds,omitempty"` // sleep
	Name    string  `json:"name,omitempty"`    // sysctl
	Value   Setting `json:"value,omitempty"`   // sysctl
	Text    string  `json:"text,omitempty"`    // note; of proc, what the file said
	File    string  `json:"file,omitempty"`    // proc: one of control.ProcFiles
	Desc    string  `json:"desc,omitempty"`

	From  string  `json:"from,omitempty"`  // pkt, frame: client or rs
	Proto string  `json:"proto,omitempty"` // pkt, bulk: tcp, udp or sctp
	Src   string  `json:"src,omitempty"`   // pkt: address:port
	Dst   string  `json:"dst,omitempty"`
	Flags *string `json:"flags,omitempty"` // tcp: letters of FSRPAUEC
	Chunk *uint8  `json:"chunk,omitempty"` // sctp: type of the only chunk

	In        string          `json:"in,omitempty"` // frame: hex, from the Ethernet header on
	InSummary json.RawMessage `json:"in_summary,omitempty"`

	Result
}

// Result is what an event led to. A nil field was not recorded.
type Result struct {
	RC      *int    `json:"rc,omitempty"` // exit code of ipvsadm
	Stdout  string  `json:"stdout,omitempty"`
	Stderr  string  `json:"stderr,omitempty"`
	Out     []Out   `json:"out,omitempty"`     // what left the director; empty: nothing did
	Results []Bulk  `json:"results,omitempty"` // bulk: in order
	Table   []Row   `json:"table,omitempty"`   // services after the event; nil: as before
	Conns   []Entry `json:"conns,omitempty"`   // the whole connection table after the event

	proc      string  // proc: what the file says
	lingering []Entry // a kernel may still show them
}

// Out is one packet that left the director.
type Out struct {
	To     string  `json:"to"`           // client or rs: the side it went to
	RS     string  `json:"rs,omitempty"` // RSn: the real server whose MAC it went to
	Tunnel string  `json:"tunnel,omitempty"`
	Outer  string  `json:"outer,omitempty"` // the tunnel's addresses: "a > b"
	Proto  string  `json:"proto,omitempty"`
	Src    string  `json:"src,omitempty"`
	Dst    string  `json:"dst,omitempty"`
	Flags  *string `json:"flags,omitempty"`
	Chunk  *uint8  `json:"chunk,omitempty"`
	ICMP   string  `json:"icmp,omitempty"` // type/code
	ICMP6  string  `json:"icmp6,omitempty"`

	Frame   string          `json:"frame,omitempty"` // of frame events: hex
	Summary json.RawMessage `json:"summary,omitempty"`
}

// Bulk is one packet of a bulk and its outcome: RSn, "icmp T/C", "icmp6 T/C",
// "tcp FLAGS" or "silence".
type Bulk struct{ Src, Dst, Outcome string }

// Row is a service with its servers in the order of the schedulers' list.
type Row struct {
	Service string
	Servers []ServerRow
}

// ServerRow is a real server's line.
type ServerRow struct {
	Addr                  string
	Weight, Active, InAct int64
}

// Entry is a connection, or a template (client port 0).
type Entry struct {
	Proto   string `json:"proto"`
	Client  string `json:"client"`
	Virtual string `json:"virtual"`
	Dest    string `json:"dest"`
	State   string `json:"state"`
	Expires int64  `json:"expires"` // seconds left, cut

	left float64       // the same, uncut
	ends time.Duration // the virtual time at which it ends
}

// Setting is a kernel setting's value; files hold a number or a string.
type Setting string

// UnmarshalJSON reads a number or a string.
func (s *Setting) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*s = Setting(text)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("a setting is a number or a string, not %s", b)
	}
	*s = Setting(n)
	return nil
}

// MarshalJSON writes a number where it is one.
func (s Setting) MarshalJSON() ([]byte, error) {
	var n int64
	if json.Unmarshal([]byte(s), &n) == nil {
		return []byte(s), nil
	}
	return json.Marshal(string(s))
}

// UnmarshalJSON reads [src, dst, outcome]; the outcome may be missing.
func (b *Bulk) UnmarshalJSON(raw []byte) error {
	var parts []string
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("a bulk's packet is [source, destination, outcome], not %s", raw)
	}
	b.Src, b.Dst = parts[0], parts[1]
	if len(parts) == 3 {
		b.Outcome = parts[2]
	}
	return nil
}

// MarshalJSON writes [src, dst, outcome].
func (b Bulk) MarshalJSON() ([]byte, error) { return json.Marshal([3]string{b.Src, b.Dst, b.Outcome}) }

// UnmarshalJSON reads [service, servers].
func (r *Row) UnmarshalJSON(raw []byte) error { return tuple(raw, &r.Service, &r.Servers) }

// MarshalJSON writes [service, servers].
func (r Row) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.Service, append([]ServerRow{}, r.Servers...)})
}

// UnmarshalJSON reads [address:port, weight, ActiveConn, InActConn].
func (r *ServerRow) UnmarshalJSON(raw []byte) error {
	return tuple(raw, &r.Addr, &r.Weight, &r.Active, &r.InAct)
}

// MarshalJSON writes [address:port, weight, ActiveConn, InActConn].
func (r ServerRow) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.Addr, r.Weight, r.Active, r.InAct})
}

// tuple reads an array whose elements have different types.
func tuple(raw []byte, fields ...any) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	if len(parts) != len(fields) {
		return fmt.Errorf("%d elements are expected, not %s", len(fields), raw)
	}
	for i, p := range parts {
		if err := json.Unmarshal(p, fields[i]); err != nil {
			return err
		}
	}
	return nil
}

// MarshalJSON writes the event in one line; an empty list that was recorded is
// written, other than one that was not.
func (e *Event) MarshalJSON() ([]byte, error) {
	type plain Event // without this method
	line, err := encode((*plain)(e))
	if err != nil {
		return nil, err
	}
	line = bytes.TrimSuffix(line, []byte("}"))
	for _, list := range []struct {
		name  string
		empty bool
	}{{"out", e.Out != nil && len(e.Out) == 0}, {"table", e.Table != nil && len(e.Table) == 0}, {"conns", e.Conns != nil && len(e.Conns) == 0}} {
		if list.empty {
			line = fmt.Appendf(line, `,%q:[]`, list.name)
		}
	}
	return append(line, '}'), nil
}

// encode writes JSON that keeps < > & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Load reads a scenario's file and reports, with the file's name, what is wrong
// with it.
func Load(file string) (*Scenario, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s, err := Parse(b)
	if err == nil {
		err = s.valid()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// Parse reads a scenario. Fields that are not known are errors, so that a
// mistyped one does not go unnoticed.
func Parse(b []byte) (*Scenario, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	s := &Scenario{}
	if err := d.Decode(s); err != nil {
		at := d.InputOffset()
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = syntax.Offset
		}
		return nil, atLine(b, at, err)
	}
	if at := d.InputOffset(); len(bytes.TrimSpace(b[at:])) > 0 {
		return nil, atLine(b, at, errors.New("something follows the scenario: a file holds one"))
	}
	return s, nil
}

// atLine says in which line of a file an offset is.
func atLine(b []byte, offset int64, err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the file is empty")
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(b[:min(int(offset), len(b))], []byte("\n")), err)
}

// Marshal writes a scenario as a file, one event a line.
func (s *Scenario) Marshal() ([]byte, error) {
	head := *s
	head.Events = nil
	top, err := encode(head)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(top, []byte(`"events":null}`)))
	b.WriteString("\n \"events\": [")
	for i, e := range s.Events {
		line, err := encode(e)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(line)
	}
	b.WriteString("\n ]}\n")
	return b.Bytes(), nil
}

// GroupOf is what stands before the first hyphen of a scenario's id: counts are
// printed by group.
func GroupOf(id string) string {
	group, _, _ := strings.Cut(id, "-")
	return group
}

// String describes an event in one line.
func (e *Event) String() string {
	switch e.Op {
	case "ipvsadm", "route":
		return e.Op + " " + e.Args
	case "pkt":
		return fmt.Sprintf("%s sends %s %s > %s%s", e.From, e.Proto, e.Src, e.Dst, e.detail())
	case "bulk":
		return fmt.Sprintf("%d packets %s%s %s", len(e.Results), e.Proto, e.detail(), e.Desc)
	case "frame":
		return fmt.Sprintf("%s sends a frame: %s", e.From, e.Desc)
	case "sleep":
		return "sleep " + strconv.FormatFloat(e.Seconds, 'f', -1, 64)
	case "sysctl":
		return fmt.Sprintf("sysctl %s=%s", e.Name, string(e.Value))
	case "note":
		return "# " + e.Text
	case "proc":
		return "cat " + e.File
	}
	return e.Op
}

func (e *Event) detail() string {
	if e.Chunk != nil {
		return fmt.Sprintf(" chunk %d", *e.Chunk)
	}
	if e.Flags != nil {
		return " " + *e.Flags
	}
	return ""
}
