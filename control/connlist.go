package control

import (
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
)

// measured is how many connections the widths of a listing's columns are made by;
// longer texts that come later stick out.
const measured = 1000

// connColumns are the headings of a wide listing; those from firstNumber on stand
// at the right of their columns.
func connColumns() []string {
	return []string{"Pro", "Client", "VIP", "Server", "Forward", "State", "Age", "Idle", "Expires", "InPkts", "InBytes", "OutPkts", "OutBytes"}
}

const firstNumber = 6

// WriteConnectionTable writes connections as they come, a line each, with their
// age and what they counted. "n/a" stands where the director does not see replies,
// "-" where a template has nothing. It returns how many there were.
func WriteConnectionTable(w io.Writer, conns iter.Seq2[Connection, error]) (n int, err error) {
	t := columns{w: w, widths: make([]int, len(connColumns()))}
	t.add(connColumns())
	for c, err := range conns {
		if err != nil {
			return n, err
		}
		n++
		if err := t.add(connRow(&c)); err != nil {
			return n, err
		}
	}
	return n, t.flush()
}

func connRow(c *Connection) []string {
	end := func(addr string, port uint16) string {
		if strings.Contains(addr, ":") {
			addr = "[" + addr + "]"
		}
		return addr + ":" + strconv.Itoa(int(port))
	}
	row := []string{
		c.Protocol, end(c.Client, c.ClientPort), end(c.VIP, c.Port), end(c.Destination, c.DestinationPort), c.Method, c.State,
		spanText(c.Age), spanText(c.Idle), spanText(c.Expires),
	}
	for _, t := range []*Traffic{c.Requests, c.Replies} {
		switch {
		case c.Template:
			row = append(row, "-", "-")
		case t == nil:
			row = append(row, "n/a", "n/a")
		default:
			row = append(row, strconv.FormatUint(t.Packets, 10), strconv.FormatUint(t.Bytes, 10))
		}
	}
	return row
}

// spanText writes seconds in two units at most: 7s, 2m05s, 3h02m, 5d04h.
func spanText(seconds int64) string {
	s := max(seconds, 0)
	const minute, hour, day = int64(time.Minute / time.Second), int64(time.Hour / time.Second), int64(24 * time.Hour / time.Second)
	switch {
	case s < minute:
		return fmt.Sprintf("%ds", s)
	case s < hour:
		return fmt.Sprintf("%dm%02ds", s/minute, s%minute)
	case s < day:
		return fmt.Sprintf("%dh%02dm", s/hour, s%hour/minute)
	}
	return fmt.Sprintf("%dd%02dh", s/day, s%day/hour)
}

// columns writes rows under each other. It waits for the first ones, to see how
// wide they are.
type columns struct {
	w      io.Writer
	widths []int
	rows   [][]string
	fixed  bool
}

func (t *columns) add(row []string) error {
	if t.fixed {
		return t.write(row)
	}
	for i, cell := range row {
		t.widths[i] = max(t.widths[i], len(cell))
	}
	if t.rows = append(t.rows, row); len(t.rows) > measured {
		return t.flush()
	}
	return nil
}

func (t *columns) flush() error {
	t.fixed = true
	for _, row := range t.rows {
		if err := t.write(row); err != nil {
			return err
		}
	}
	t.rows = nil
	return nil
}

func (t *columns) write(row []string) error {
	var b strings.Builder
	for i, cell := range row {
		if i > 0 {
			b.WriteByte(' ')
		}
		if i >= firstNumber {
			fmt.Fprintf(&b, "%*s", t.widths[i], cell)
		} else {
			fmt.Fprintf(&b, "%-*s", t.widths[i], cell)
		}
	}
	_, err := io.WriteString(t.w, b.String()+"\n")
	return err
}
