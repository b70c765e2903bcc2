package capture_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"pktdirector/capture"
)

// kept is a record whose data is its own.
type kept struct {
	capture.Record
	data []byte
}

// readAll reads until Next returns an error, which it returns when it is not io.EOF.
func readAll(r *capture.Reader) ([]kept, error) {
	var all []kept
	for {
		var rec capture.Record
		err := r.Next(&rec)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, kept{rec, bytes.Clone(rec.Data)})
	}
}

// fromBytes reads a file that lies in memory.
func fromBytes(t testing.TB, file []byte) ([]kept, []capture.Warning, error) {
	t.Helper()
	r, err := capture.NewReader(bytes.NewReader(file), capture.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	all, err := readAll(r)
	return all, r.Warnings(), err
}

// fromFiles reads files of testdata.
func fromFiles(t testing.TB, names ...string) ([]kept, *capture.Reader) {
	t.Helper()
	for i := range names {
		names[i] = "testdata/" + names[i]
	}
	r, err := capture.Open(names, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	all, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all, r
}

func codes(w []capture.Warning) []string {
	var out []string
	for _, x := range w {
		out = append(out, x.Code)
	}
	slices.Sort(out)
	return out
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// a record of a pcap file to build.
type pcapRecord struct {
	sec, fraction, incl, orig uint32
	data                      []byte
}

// pcap builds a file of any magic, order, version and link type.
func pcap(order binary.AppendByteOrder, magic uint32, minor uint16, snaplen, network uint32, records ...pcapRecord) []byte {
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(b, 2)
	b = order.AppendUint16(b, minor)
	b = order.AppendUint32(b, 0)
	b = order.AppendUint32(b, 0)
	b = order.AppendUint32(b, snaplen)
	b = order.AppendUint32(b, network)
	for _, r := range records {
		for _, n := range []uint32{r.sec, r.fraction, r.incl, r.orig} {
			b = order.AppendUint32(b, n)
		}
		b = append(b, r.data...)
	}
	return b
}

const (
	micro = 0xa1b2c3d4
	nano  = 0xa1b23c4d
)

// bytesOf returns n bytes that tell their place.
func bytesOf(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return b
}

// ng builds pcapng files.
type ng struct {
	order binary.AppendByteOrder
	b     []byte
}

func newNg(order binary.AppendByteOrder) *ng {
	n := &ng{order: order}
	n.section(1)
	return n
}

func (n *ng) block(kind uint32, body []byte) *ng {
	body = append(bytes.Clone(body), make([]byte, (4-len(body)%4)%4)...)
	n.b = n.order.AppendUint32(n.b, kind)
	n.b = n.order.AppendUint32(n.b, uint32(12+len(body)))
	n.b = append(n.b, body...)
	n.b = n.order.AppendUint32(n.b, uint32(12+len(body)))
	return n
}

func (n *ng) section(major uint16) *ng {
	b := n.order.AppendUint32(nil, 0x1a2b3c4d)
	b = n.order.AppendUint16(b, major)
	b = n.order.AppendUint16(b, 0)
	return n.block(0x0a0d0d0a, append(b, 255, 255, 255, 255, 255, 255, 255, 255))
}

// option is an option's code and value.
type option struct {
	code  uint16
	value []byte
}

func (n *ng) options(b []byte, options ...option) []byte {
	for _, o := range options {
		b = n.order.AppendUint16(b, o.code)
		b = n.order.AppendUint16(b, uint16(len(o.value)))
		b = append(append(b, o.value...), make([]byte, (4-len(o.value)%4)%4)...)
	}
	return b
}

func (n *ng) iface(kind uint16, snaplen uint32, options ...option) *ng {
	b := n.order.AppendUint16(nil, kind)
	b = n.order.AppendUint16(b, 0)
	return n.block(1, n.options(n.order.AppendUint32(b, snaplen), options...))
}

func (n *ng) packet(iface uint32, t uint64, orig int, data []byte, options ...option) *ng {
	b := n.order.AppendUint32(nil, iface)
	for _, v := range []uint32{uint32(t >> 32), uint32(t), uint32(len(data)), uint32(orig)} {
		b = n.order.AppendUint32(b, v)
	}
	b = append(append(b, data...), make([]byte, (4-len(data)%4)%4)...)
	return n.block(6, n.options(b, options...))
}

func (n *ng) old(iface, drops uint16, t uint64, orig int, data []byte) *ng {
	b := n.order.AppendUint16(nil, iface)
	b = n.order.AppendUint16(b, drops)
	for _, v := range []uint32{uint32(t >> 32), uint32(t), uint32(len(data)), uint32(orig)} {
		b = n.order.AppendUint32(b, v)
	}
	return n.block(2, append(b, data...))
}

func (n *ng) simple(orig int, data []byte) *ng {
	return n.block(3, append(n.order.AppendUint32(nil, uint32(orig)), data...))
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q, want one that says %q", err, w)
		}
	}
}

var errDisk = errors.New("no space left on device")
