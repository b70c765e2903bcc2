package conntrack

import (
	"time"

	"pktdirector/packet"
)

// State is a connection's state as ipvsadm -Lc names it.
type State uint8

// TCP's states, those of UDP and of templates, and SCTP's.
const (
	None State = iota
	Established
	SynSent
	SynRecv
	FinWait
	TimeWait
	Close
	CloseWait
	LastAck
	Listen
	SynAck
	UDP
	Assured // of a template: one of its connections was established
	SCTPNone
	SCTPInit1
	SCTPInit
	SCTPCookieSent
	SCTPCookieReplied
	SCTPCookieWait
	SCTPCookie
	SCTPCookieEchoed
	SCTPEstablished
	SCTPShutdownSent
	SCTPShutdownReceived
	SCTPShutdownAckSent
	SCTPRejected
	SCTPClosed
	numStates
)

// NumStates counts the states.
const NumStates = numStates

const numTCPStates = int(SynAck) + 1

// String returns the name ipvsadm prints.
func (s State) String() string {
	names := [numStates]string{
		"NONE", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT", "TIME_WAIT",
		"CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "SYNACK", "UDP", "ASSURED",
		"NONE", "INIT1", "INIT", "C-SENT", "C-REPLIED", "C-WAIT", "COOKIE", "C-ECHOED", "ESTABLISHED",
		"S-SENT", "S-RECEIVED", "S-ACK-SENT", "REJECTED", "CLOSED",
	}
	if s >= numStates {
		return "?"
	}
	return names[s]
}

// counts reports whether a connection in this state is an ActiveConn. A
// half-open connection is active; UDP never is.
func (s State) counts() bool {
	return s == Established || s == SynSent || s == SynRecv || s == SynAck || s == SCTPEstablished
}

// Timeouts gives, per state, how long an entry lives after its last packet.
type Timeouts [numStates]time.Duration

// DefaultTimeouts are the kernel's. ipvsadm --set changes three of them:
// ESTABLISHED, FIN_WAIT and UDP.
func DefaultTimeouts() Timeouts {
	t := Timeouts{
		None:        2 * time.Second,
		Established: 900 * time.Second,
		SynSent:     120 * time.Second,
		SynRecv:     60 * time.Second,
		FinWait:     120 * time.Second,
		TimeWait:    120 * time.Second,
		Close:       10 * time.Second,
		CloseWait:   60 * time.Second,
		LastAck:     30 * time.Second,
		Listen:      120 * time.Second,
		SynAck:      120 * time.Second,
		UDP:         300 * time.Second,
	}
	for s := SCTPNone; s <= SCTPClosed; s++ {
		t[s] = sctpTimeout(s)
	}
	return t
}

// tcpEvent is what a TCP segment means to the state table, in the order of
// precedence RST, SYN, FIN, ACK.
type tcpEvent uint8

const (
	evSYN tcpEvent = iota
	evFIN
	evACK
	evRST
	numTCPEvents
)

// tcpEventOf reads a segment's flags; ok is false for a segment with none of
// the four flags, which closes the connection.
func tcpEventOf(flags uint8) (ev tcpEvent, ok bool) {
	switch {
	case flags&packet.RST != 0:
		return evRST, true
	case flags&packet.SYN != 0:
		return evSYN, true
	case flags&packet.FIN != 0:
		return evFIN, true
	case flags&packet.ACK != 0:
		return evACK, true
	}
	return 0, false
}

type tcpTable [numTCPEvents][numTCPStates]State

// The kernel's three TCP tables. Columns: None, Established, SynSent, SynRecv,
// FinWait, TimeWait, Close, CloseWait, LastAck, Listen, SynAck.
func tcpTables() (input, output, inputOnly *tcpTable) {
	const (
		ES = Established
		SS = SynSent
		SR = SynRecv
		FW = FinWait
		TW = TimeWait
		CL = Close
		CW = CloseWait
		LA = LastAck
		LI = Listen
		SA = SynAck
	)
	input = &tcpTable{
		//      NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
		evSYN: {SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SR},
		evFIN: {CL, CW, SS, TW, TW, TW, CL, CW, LA, LI, TW},
		evACK: {ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES},
		evRST: {CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, SR},
	}
	output = &tcpTable{
		//      NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
		evSYN: {SS, ES, SS, SR, SS, SS, SS, SS, SS, LI, SR},
		evFIN: {TW, FW, SS, TW, FW, TW, CL, TW, LA, LI, TW},
		evACK: {ES, ES, SS, ES, FW, TW, CL, CW, LA, ES, ES},
		evRST: {CL, CL, SS, CL, CL, TW, CL, CL, CL, CL, CL},
	}
	inputOnly = &tcpTable{
		//      NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
		evSYN: {SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SR},
		evFIN: {CL, FW, SS, TW, FW, TW, CL, CW, LA, LI, TW},
		evACK: {ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES},
		evRST: {CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, CL},
	}
	return input, output, inputOnly
}

// nextTCP returns the state after a segment.
func (t *Table) nextTCP(c *Conn, dir Direction, flags uint8) State {
	ev, ok := tcpEventOf(flags)
	if !ok {
		return Close
	}
	input, output, inputOnly := t.tcpInput, t.tcpOutput, t.tcpInputOnly
	if t.secureTCP.Load() {
		input, output, inputOnly = t.secureInput, t.secureOutput, t.secureInputOnly
	}
	switch {
	case dir == Reply:
		return output[ev][c.State]
	case c.Flags&NoOutput != 0:
		return inputOnly[ev][c.State]
	}
	return input[ev][c.State]
}
