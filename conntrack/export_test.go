package conntrack

// SetTimeoutsForTest lets tests choose timeouts.
func (t *Table) SetTimeoutsForTest(x Timeouts) { t.timeouts.Store(&x) }

// TableName names one of the state tables.
type TableName string

// StateTables returns every state table, as rows of events and columns of
// states.
func StateTables() (tables map[TableName][][]State) {
	tables = map[TableName][][]State{}
	tcp := func(name TableName, t *tcpTable) {
		for ev := range t {
			tables[name] = append(tables[name], t[ev][:])
		}
	}
	sctp := func(name TableName, t *sctpTable) {
		for ev := range t {
			tables[name] = append(tables[name], t[ev][:])
		}
	}
	in, out, only := tcpTables()
	tcp("TCP requests, replies seen", in)
	tcp("TCP replies", out)
	tcp("TCP requests, replies not seen", only)
	in, out, only = secureTables()
	tcp("TCP requests, replies seen, secure_tcp", in)
	tcp("TCP replies, secure_tcp", out)
	tcp("TCP requests, replies not seen, secure_tcp", only)
	sin, sout, sonly := sctpTables()
	sctp("SCTP requests, replies seen", sin)
	sctp("SCTP replies", sout)
	sctp("SCTP requests, replies not seen", sonly)
	return tables
}

// TCPEvents names the rows of the tables of TCP.
func TCPEvents() []string { return []string{"SYN", "FIN", "ACK", "RST"} }

// SCTPEvents names the rows of SCTP's tables.
func SCTPEvents() []string {
	return []string{"other", "INIT", "INIT-ACK", "COOKIE-ECHO", "COOKIE-ACK", "SHUTDOWN", "SHUTDOWN-ACK", "SHUTDOWN-COMPLETE", "ERROR", "ABORT"}
}

// Counts is counts.
func (s State) Counts() bool { return s.counts() }

// OnPage goes through the table as RemoveIf does and calls locked before each page.
func OnPage(t *Table, locked func(), do func(*Conn)) {
	for i := range t.shards {
		for at, more := 0, true; more; at++ {
			locked()
			more = t.shards[i].withPage(at, do)
		}
	}
}
