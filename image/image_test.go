package image_test

import (
	"bytes"
	"math"
	"net/netip"
	"slices"
	"testing"

	"pktdirector/image"
	"pktdirector/packet"
)

// everything is a value of each kind.
type everything struct {
	a    int64
	b    uint8
	c    uint16
	d    uint32
	e    int
	yes  bool
	text string
	addr packet.Addr
	nets []netip.Prefix
}

func (v *everything) carry(x *image.Codec) {
	image.Num(x, &v.a)
	image.Num(x, &v.b)
	image.Num(x, &v.c)
	image.Num(x, &v.d)
	image.Num(x, &v.e)
	x.Bool(&v.yes)
	x.Text(&v.text)
	x.Addr(&v.addr)
	image.List(x, &v.nets, 18, (*image.Codec).Prefix)
}

func TestValuesComeBack(t *testing.T) {
	for _, v := range []everything{
		{},
		{a: math.MinInt64, b: 255, c: 65535, d: math.MaxUint32, e: -1, yes: true, text: "a\x00b", addr: packet.MustParseAddr("2001:db8::1")},
		{addr: packet.MustParseAddr("192.0.2.1"), nets: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32")}},
	} {
		w := image.Writing(nil)
		v.carry(w)
		var got everything
		r := image.Reading(w.Bytes())
		got.carry(r)
		if err := r.End(); err != nil {
			t.Errorf("%+v: %v", v, err)
		}
		if got.a != v.a || got.b != v.b || got.c != v.c || got.d != v.d || got.e != v.e || got.yes != v.yes || got.text != v.text || got.addr != v.addr || !slices.Equal(got.nets, v.nets) {
			t.Errorf("%+v came back as %+v", v, got)
		}
		for n := range w.Bytes() {
			r := image.Reading(w.Bytes()[:n])
			new(everything).carry(r)
			if r.End() == nil {
				t.Errorf("%+v cut at %d: taken", v, n)
			}
		}
		r = image.Reading(append(bytes.Clone(w.Bytes()), 0))
		new(everything).carry(r)
		if r.End() == nil {
			t.Errorf("%+v and a byte more: taken", v)
		}
	}
}

// A list's length that nothing follows allocates nothing.
func TestHugeListsAllocateNothing(t *testing.T) {
	huge := []byte{255, 255, 255, 255, 1, 2, 3}
	if n := testing.AllocsPerRun(10, func() {
		var list []uint64
		image.List(image.Reading(huge), &list, 8, func(x *image.Codec, v *uint64) { image.Num(x, v) })
		if list != nil {
			t.Error("a list came back")
		}
	}); n > 8 { // the error
		t.Errorf("%v allocations", n)
	}
}

// file is a file of parts that hold these texts.
func file(texts ...string) []byte {
	b := image.AppendHead(nil)
	head := len(b)
	for i, s := range texts {
		b = image.AppendPart(b, image.Kind(i+1), i, func(b []byte) []byte { return append(b, s...) })
	}
	return image.AppendEnd(b, len(texts), int64(len(b)-head))
}

// check reads a file as a whole.
func check(b []byte) error {
	parts, err := image.Parts(b)
	for i := range parts {
		if err == nil {
			err = parts[i].Check()
		}
	}
	return err
}

func TestDamagedFilesAreRefused(t *testing.T) {
	whole := file("first", "", "third")
	if err := check(whole); err != nil {
		t.Fatal(err)
	}
	for bit := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if check(b) == nil {
			t.Errorf("bit %d of byte %d flipped: taken", bit%8, bit/8)
		}
	}
	for n := range whole {
		if check(whole[:n]) == nil {
			t.Errorf("cut at %d: taken", n)
		}
	}
	if check(append(bytes.Clone(whole), 0)) == nil {
		t.Error("a byte more: taken")
	}
	if check(append(image.AppendHead(nil), file("a")[12:]...)) != nil {
		t.Error("a file of one part: refused")
	}
	two := append(bytes.Clone(file("a")), file("b")...)
	if check(two) == nil {
		t.Error("two files in a row: taken")
	}
}

func FuzzParts(f *testing.F) {
	f.Add(file())
	f.Add(file("first", "second"))
	f.Fuzz(func(t *testing.T, b []byte) {
		parts, err := image.Parts(b)
		if err != nil {
			return
		}
		size := 0
		for i := range parts {
			_ = parts[i].Check()
			size += len(parts[i].Payload)
		}
		if size > len(b) {
			t.Errorf("%d bytes of %d", size, len(b))
		}
	})
}
