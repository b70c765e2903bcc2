package conntrack

import "time"

// numSCTPStates counts the states from SCTPNone on.
const numSCTPStates = int(SCTPClosed-SCTPNone) + 1

// sctpEvent is what an SCTP packet's first chunk means to the state table.
type sctpEvent uint8

const (
	evData sctpEvent = iota // and everything that is not below
	evInit
	evInitAck
	evCookieEcho
	evCookieAck
	evShutdown
	evShutdownAck
	evShutdownComplete
	evError
	evAbort
	numSCTPEvents
)

// sctpEventOf reads a chunk type (RFC 9260 section 3.2).
func sctpEventOf(chunk uint8) sctpEvent {
	switch chunk {
	case 1:
		return evInit
	case 2:
		return evInitAck
	case 6:
		return evAbort
	case 7:
		return evShutdown
	case 8:
		return evShutdownAck
	case 9:
		return evError
	case 10:
		return evCookieEcho
	case 11:
		return evCookieAck
	case 14:
		return evShutdownComplete
	}
	return evData
}

type sctpTable [numSCTPEvents][numSCTPStates]State

// move is one rule of a state table: an event takes a connection from each of
// some states to another one.
type move struct {
	event sctpEvent
	from  []State
	to    State
}

// newSCTPTable makes a table in which an event without a rule changes nothing.
func newSCTPTable(moves []move) *sctpTable {
	t := new(sctpTable)
	for ev := range t {
		for i := range t[ev] {
			t[ev][i] = SCTPNone + State(i)
		}
	}
	for _, m := range moves {
		for _, from := range m.from {
			t[m.event][from-SCTPNone] = m.to
		}
	}
	return t
}

// sctpTables returns the kernel's three SCTP tables.
func sctpTables() (input, output, inputOnly *sctpTable) {
	const (
		NO = SCTPNone
		I1 = SCTPInit1
		IN = SCTPInit
		CS = SCTPCookieSent
		CR = SCTPCookieReplied
		CW = SCTPCookieWait
		CO = SCTPCookie
		CE = SCTPCookieEchoed
		ES = SCTPEstablished
		SS = SCTPShutdownSent
		SR = SCTPShutdownReceived
		SA = SCTPShutdownAckSent
		RJ = SCTPRejected
		CL = SCTPClosed
	)
	all := []State{NO, I1, IN, CS, CR, CW, CO, CE, ES, SS, SR, SA, RJ, CL}
	upTo := func(last State) []State { return all[:last-NO+1] }
	s := func(states ...State) []State { return states }
	input = newSCTPTable([]move{
		{evData, s(NO), ES},
		{evInit, s(NO), I1}, {evInit, s(I1, RJ, CL), IN},
		{evInitAck, s(NO, I1, IN), CW}, {evInitAck, s(CW), CO},
		{evCookieEcho, s(NO), CR}, {evCookieEcho, s(I1), IN}, {evCookieEcho, s(CS), CR},
		{evCookieAck, s(NO, CE), ES},
		{evShutdown, s(NO, ES), SR},
		{evShutdownAck, s(NO, SS, SA), CL}, {evShutdownAck, s(I1), IN},
		{evShutdownComplete, s(NO, I1, IN, SA), CL},
		{evError, s(NO, CE), CL},
		{evAbort, all, CL}, {evAbort, s(CW), RJ},
	})
	output = newSCTPTable([]move{
		{evData, s(NO), ES},
		{evInit, all, CW}, {evInit, s(ES), ES},
		{evInitAck, s(NO, I1, IN), CS},
		{evCookieEcho, s(NO, I1, IN, CS, CR, CW, CO), CE},
		{evCookieAck, upTo(CE), ES},
		{evShutdown, upTo(ES), SS},
		{evShutdownAck, s(NO, I1, IN, CS, CR), SA}, {evShutdownAck, s(SS, SR), SA},
		{evShutdownComplete, s(NO), CL},
		{evError, s(NO, I1, IN, CS, CR), CL},
		{evAbort, all, CL}, {evAbort, s(I1), RJ},
	})
	inputOnly = newSCTPTable([]move{
		{evData, s(NO, CW), ES},
		{evInit, s(NO), I1}, {evInit, s(I1, CS, CR, CW, RJ, CL), IN},
		{evInitAck, s(NO, I1, IN, CS, CR, CW), CE},
		{evCookieEcho, s(NO, I1, IN, CS, CR, CW), ES},
		{evCookieAck, s(NO, CS, CR, CO, CE), ES},
		{evShutdown, s(NO, ES), SR},
		{evShutdownAck, s(NO, ES, SS, SA), CL}, {evShutdownAck, s(I1), IN},
		{evShutdownComplete, s(NO, I1, IN, CS, CR), CL}, {evShutdownComplete, s(SR, SA), CL},
		{evError, s(NO), CL},
		{evAbort, all, CL}, {evAbort, s(CW), RJ},
	})
	return input, output, inputOnly
}

// sctpTimeout returns how long an SCTP entry lives after its last packet.
func sctpTimeout(s State) time.Duration {
	switch s {
	case SCTPNone:
		return 2 * time.Second
	case SCTPInit1, SCTPRejected:
		return 4 * time.Second
	case SCTPEstablished:
		return 900 * time.Second
	}
	return 61 * time.Second
}

// nextSCTP returns the state after a packet whose first chunk is given.
func (t *Table) nextSCTP(c *Conn, dir Direction, chunk uint8) State {
	at := max(c.State, SCTPNone) - SCTPNone
	ev := sctpEventOf(chunk)
	switch {
	case dir == Reply:
		return t.sctpOutput[ev][at]
	case c.Flags&NoOutput != 0:
		return t.sctpInputOnly[ev][at]
	}
	return t.sctpInput[ev][at]
}
