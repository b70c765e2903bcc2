package judge_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"pktdirector/capture"
	"pktdirector/capture/judge"
)

// traffic is a pcap file of n frames of 100 bytes: clients of a masqueraded
// service, each packet as it comes in and as it is sent on.
func traffic(n int) []byte {
	const frame, clients = 100, 2000
	le, be := binary.LittleEndian, binary.BigEndian
	b := make([]byte, 24, 24+n*(16+frame))
	le.PutUint32(b, 0xa1b2c3d4)
	le.PutUint16(b[4:], 2)
	le.PutUint16(b[6:], 4)
	le.PutUint32(b[16:], 65535)
	le.PutUint32(b[20:], 1)
	one := make([]byte, 16+frame)
	le.PutUint32(one[8:], frame)
	le.PutUint32(one[12:], frame)
	for i := range n {
		pair := i / 2
		le.PutUint32(one, uint32(i/1_000_000))
		le.PutUint32(one[4:], uint32(i%1_000_000))
		f := one[16:]
		be.PutUint16(f[12:], 0x0800)
		ip := f[14:]
		ip[0], ip[8], ip[9] = 0x45, 64, 6
		be.PutUint16(ip[2:], frame-14)
		be.PutUint16(ip[4:], uint16(pair))
		copy(ip[12:], []byte{198, 51, 100, byte(pair % clients)})
		tcp := ip[20:]
		be.PutUint16(tcp, uint16(1024+pair%clients))
		be.PutUint32(tcp[4:], uint32(1000+pair/clients*46))
		tcp[12], tcp[13] = 5<<4, 0x10
		if pair < clients {
			tcp[13] = 2
		}
		if i%2 == 0 {
			copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2})
			copy(ip[16:], []byte{192, 0, 2, 10})
			be.PutUint16(tcp[2:], 80)
		} else {
			copy(f, []byte{2, 0, 0, 0, 1, byte(pair % clients % 3), 2, 0, 0, 0, 0, 1})
			copy(ip[16:], []byte{10, 2, 0, byte(pair % clients % 3)})
			be.PutUint16(tcp[2:], 8080)
			ip[8]--
		}
		b = append(b, one...)
	}
	return b
}

// BenchmarkReplay reads and judges frames of 100 bytes.
func BenchmarkReplay(b *testing.B) {
	const n = 1_000_000
	file := traffic(n)
	b.ReportAllocs()
	for b.Loop() {
		r, err := capture.NewReader(bytes.NewReader(file), capture.Options{})
		if err != nil {
			b.Fatal(err)
		}
		j := judge.New(judge.Options{})
		var rec capture.Record
		for {
			if err := r.Next(&rec); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			j.Add(&rec)
		}
		if got := len(j.Report().Connections); got != 2000 {
			b.Fatalf("%d connections", got)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpackets/s")
}
