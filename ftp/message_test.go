package ftp_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pktdirector/ftp"
	"pktdirector/packet"
)

func addr(s string) packet.Addr { return packet.MustParseAddr(s) }

func TestReplies(t *testing.T) {
	for line, want := range map[string]ftp.Message{
		"227 Entering Passive Mode (10,2,0,1,195,80).\r":    {Kind: ftp.PASV, Addr: addr("10.2.0.1"), Port: 50000, Start: 27, End: 35},
		"227 Entering Passive Mode (10,2,0,1,195,80)":       {Kind: ftp.PASV, Addr: addr("10.2.0.1"), Port: 50000, Start: 27, End: 35},
		"227 =10,2,0,1,195,80":                              {Kind: ftp.PASV, Addr: addr("10.2.0.1"), Port: 50000, Start: 5, End: 13},
		"227 Mode 5 (010,002,000,001,0,21)":                 {Kind: ftp.PASV, Addr: addr("10.2.0.1"), Port: 21, Start: 12, End: 27},
		"227 Entering Passive Mode (10,2,0,1,0,0)":          {},
		"227 Entering Passive Mode (10,2,0,256,1,1)":        {},
		"227 Entering Passive Mode (10,2,0,1,1)":            {},
		"227 Entering Passive Mode (10,2,0,1,1,1,1)":        {},
		"227 Entering Passive Mode (99999999999,2,0,1,1,1)": {},
		"227 Entering Passive Mode (10, 2, 0, 1, 1, 1)":     {},
		"227-Entering Passive Mode (10,2,0,1,195,80)":       {},
		"2270 Entering Passive Mode (10,2,0,1,195,80)":      {},
		"550 227 Entering Passive Mode (10,2,0,1,195,80)":   {},
		"227":                             {},
		"227 ":                            {},
		"227 " + strings.Repeat(",", 100): {},
		"227 " + strings.Repeat("x", 200) + "10,2,0,1,195,80":      {},
		"229 Entering Extended Passive Mode (|||50001|)\r":         {Kind: ftp.EPSV, Port: 50001},
		"229 Extended Passive Mode OK (!!!1!)":                     {Kind: ftp.EPSV, Port: 1},
		"229 Entering Extended Passive Mode (|||0|)":               {},
		"229 Entering Extended Passive Mode (|||65536|)":           {},
		"229 Entering Extended Passive Mode (|||999999999999999|)": {},
		"229 Entering Extended Passive Mode (||50001|)":            {},
		"229 Entering Extended Passive Mode (|1|10.2.0.1|50001|)":  {},
		"229 Entering Extended Passive Mode (|||50001|":            {},
		"229 Entering Extended Passive Mode (|||50001":             {},
		"229 (":         {},
		"229 (1115011)": {},
	} {
		if got := ftp.ParseReply([]byte(line)); got != want {
			t.Errorf("%q is %+v, want %+v", line, got, want)
		}
	}
}

func TestCommands(t *testing.T) {
	for line, want := range map[string]ftp.Message{
		"PASV\r":                        {Kind: ftp.PASV},
		"pasv":                          {Kind: ftp.PASV},
		"EPSV":                          {Kind: ftp.EPSV},
		"EPSV 2\r":                      {Kind: ftp.EPSV},
		"EPSV ALL":                      {Kind: ftp.EPSV},
		"PASVX":                         {},
		"XPASV":                         {},
		"PORT 198,51,100,7,200,10\r":    {Kind: ftp.PORT, Addr: addr("198.51.100.7"), Port: 51210},
		"port  198,51,100,7,200,10":     {Kind: ftp.PORT, Addr: addr("198.51.100.7"), Port: 51210},
		"PORT198,51,100,7,200,10":       {},
		"PORT 198,51,100,7,200":         {},
		"PORT 198,51,100,7,0,0":         {},
		"PORT 198,51,100,7,200,10x":     {},
		"EPRT |1|198.51.100.7|51210|\r": {Kind: ftp.EPRT, Addr: addr("198.51.100.7"), Port: 51210},
		"EPRT |2|2001:db8::7|51210|":    {Kind: ftp.EPRT, Addr: addr("2001:db8::7"), Port: 51210},
		"EPRT |1|2001:db8::7|51210|":    {},
		"EPRT |2|198.51.100.7|51210|":   {},
		"EPRT |2|::ffff:1.2.3.4|51210|": {},
		"EPRT |1|198.51.100.7|70000|":   {},
		"EPRT |1|198.51.100.7|51210":    {},
		"EPRT":                          {},
		"":                              {},
	} {
		if got := ftp.ParseCommand([]byte(line)); got != want {
			t.Errorf("%q is %+v, want %+v", line, got, want)
		}
	}
}

// TestRepliesInSegments feeds a conversation in pieces: each answer is found
// once, however it is cut, and nothing that only looks like one.
func TestRepliesInSegments(t *testing.T) {
	const talk = "220 ready\r\n" +
		"230-welcome\r\n227 Entering Passive Mode (10,2,0,1,0,22)\r\n230 welcome\r\n" +
		"227 Entering Passive Mode (10,2,0,1,195,80).\r\n" +
		"257 \"say 227 Entering Passive Mode (10,2,0,1,0,23)\"\r\n" +
		"229 Entering Extended Passive Mode (|||50001|)\r\n"
	want := fmt.Sprint(uint16(50000), strings.Index(talk, "\n227 Entering Passive Mode (10,2,0,1,195")+1, uint16(50001), strings.Index(talk, "229 "))
	for size := 1; size <= len(talk); size++ {
		var r ftp.Replies
		seq := uint32(0xffffff80) // sequence numbers come round
		var got []any
		for at := 0; at < len(talk); at += size {
			piece := []byte(talk[at:min(at+size, len(talk))])
			for range 2 { // sent again
				r.Read(seq+uint32(at), piece, func(m ftp.Message, began int) { got = append(got, m.Port, at+began) })
			}
		}
		if fmt.Sprint(got...) != want {
			t.Errorf("in pieces of %d: %v, want %v", size, got, want)
		}
	}
}

func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		"227 Entering Passive Mode (10,2,0,1,195,80).\r\n", "229 Entering Extended Passive Mode (|||50001|)\r\n",
		"PORT 198,51,100,7,200,10\r\n", "EPRT |2|2001:db8::7|51210|\r\n", "230-a\r\n227 x\r\n230 b\r\n", "\n\n\n227",
	} {
		f.Add([]byte(s), uint32(1), uint8(7))
	}
	f.Fuzz(func(t *testing.T, b []byte, seq uint32, size uint8) {
		if m := ftp.ParseReply(b); m.Kind == ftp.PASV {
			// What is replaced is an address, and after that the line says the new one.
			fresh := addr("192.0.2.10")
			edited := append(ftp.AppendAddr(append([]byte(nil), b[:m.Start]...), fresh), b[m.End:]...)
			if again := ftp.ParseReply(edited); len(edited) <= ftp.MaxLine && (again.Addr != fresh || again.Port != m.Port) {
				t.Fatalf("%q edited is %q, which says %+v", b, edited, again)
			}
		}
		ftp.ParseCommand(b)
		var whole, pieces ftp.Replies
		var a, c []ftp.Message
		whole.Read(seq, b, func(m ftp.Message, began int) {
			a = append(a, m)
			if began < 0 || m.Kind == ftp.PASV && !bytes.HasPrefix(b[began:], []byte("227 ")) {
				t.Fatalf("answer %+v at %d of %q", m, began, b)
			}
		})
		for at := 0; at < len(b); at += int(size) + 1 {
			pieces.Read(seq+uint32(at), b[at:min(at+int(size)+1, len(b))], func(m ftp.Message, _ int) { c = append(c, m) })
		}
		if len(a) != len(c) {
			t.Fatalf("%q: %d answers whole, %d in pieces of %d", b, len(a), len(c), size+1)
		}
	})
}
