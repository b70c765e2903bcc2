package dataplane_test

import "pktdirector/packet"

// seed writes a script, one step after the other.
type seed []byte

func (s *seed) add(b ...byte) { *s = append(*s, b...) }

// frame is a packet of a client, or, with 8 in kind, of a server.
func (s *seed) frame(kind, who, what, flags byte, payload ...byte) {
	s.add(append([]byte{1, kind, who, what, flags}, payload...)...)
}

// answer answers the n-th last packet that left.
func (s *seed) answer(n, how, flags, what byte, payload ...byte) {
	s.add(append([]byte{7, n, how, flags, what}, payload...)...)
}

// complain sends an ICMP error about the n-th last packet that left.
func (s *seed) complain(n, how, quoted byte) { s.add(10, n, how, quoted, 1, 0x90) }

// command has the operator do something about a service and one of its servers.
func (s *seed) command(what, service, server, weight byte, more ...byte) {
	s.add(append([]byte{11, what, service, server, weight}, more...)...)
}

func (s *seed) pass(ticks uint16) { s.add(13, byte(ticks>>8), byte(ticks)) }

// engineSeeds are scripts that visit every kind of service.
func engineSeeds() [][]byte {
	const (
		S = packet.SYN
		A = packet.ACK
		F = packet.FIN
		R = packet.RST
	)
	var seeds [][]byte
	for kind := range byte(8) {
		for port := range byte(8) {
			what := port << 1
			s := seed{0x18 | port}
			// A conversation that both sides see, then its end.
			s.frame(kind, 0, what, S)
			s.answer(0, 0, S|A, 0)
			s.frame(kind, 0, what, A)
			s.frame(kind, 0, 0x60|what, A|packet.PSH, 100)
			s.answer(0, 0, A, 0x60, 200)
			s.complain(0, 8|1, 4)
			s.complain(1, 2, 0)
			s.frame(kind, 0, 0x80|what, A)
			s.frame(kind, 0, 0xc0|what, A)
			s.complain(0, 8|2, 60)
			s.frame(kind, 0, 0xa1|what, 1)
			s.frame(kind, 0, 0xa1|what, 0)
			s.frame(kind, 0, 0xa1|what, 2)
			s.answer(0, 0, F|A, 0)
			s.frame(kind, 0, what, F|A)
			s.pass(1000)
			s.frame(kind, 0, what, S)
			s.frame(kind, 0, what, R)
			s.frame(kind, 0, 0x10|what, S)
			// More clients than the table holds, some of them unknown.
			for who := range byte(8) {
				s.frame(kind, who, what, S)
				s.frame(kind, 0x10|who, what, S)
			}
			s.add(14, 1)
			s.frame(kind|8, 1, what, A)
			s.frame(kind|0x20, 1, what, S)
			s.frame(kind|0x40, 1, what, S)
			s.frame(kind|0x10, 1, what, S, 30, 1, 0)
			seeds = append(seeds, s)
		}
	}
	for what := range byte(16) {
		for _, high := range []byte{0x00, 0x10, 0x30, 0xf0} {
			s := seed{0x3f}
			for kind := range byte(6) {
				s.frame(kind, kind, 0, S)
				s.frame(kind, kind, 0, A)
			}
			for service := range byte(4) {
				s.command(high|what, service*3, service, 1, 5, 6, 7)
			}
			for kind := range byte(6) {
				s.frame(kind, kind, 0, A)
				s.frame(kind, 8|kind, 2, S)
			}
			s.add(15, 2, 9, 15, 3, 9, 15, 0xa0, 1, 15, 1, 2, 15, 0x0a, 3)
			s.pass(500)
			seeds = append(seeds, s)
		}
	}
	// FTP: a control connection, answers that announce, and data connections.
	for line := range byte(10) {
		s := seed{0x38}
		const ftp = 6
		s.frame(ftp, 0, 0, S)
		s.answer(0, 0, S|A, 0)
		s.frame(ftp, 0, 0, A)
		s.frame(ftp, 0, 0x20, A, line)
		s.answer(0, 0, A, 0x20, 4)
		s.answer(1, 0, A, 0x20, 5)
		s.answer(2, 0, A, 0x20, line)
		s.frame(ftp, 0, 0x20, A, 1-line&1)
		s.answer(0, 0, A, 0x20, line)
		s.add(14, 20)
		seeds = append(seeds, s)
	}
	seeds = append(seeds, []byte{0, 0, 4, 20, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6}, []byte{0, 0, 5, 8, 0x60, 0, 0, 0, 0, 0, 6, 1})
	return seeds
}
