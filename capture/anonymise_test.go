package capture_test

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"

	"pktdirector/capture"
)

// sampleKey is the key of the sample that came with the authors' program.
func sampleKey() [capture.AnonymiserKeyLen]byte {
	return [...]byte{21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16,
		216, 152, 143, 131, 121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2}
}

// TestCryptoPAn compares with published results: the sample trace of the authors,
// and, for IPv6, what two other programs give.
func TestCryptoPAn(t *testing.T) {
	counted := [capture.AnonymiserKeyLen]byte{}
	for i := range counted {
		counted[i] = byte(i)
	}
	readable := [capture.AnonymiserKeyLen]byte([]byte("32-char-str-for-AES-key-and-pad."))
	for _, c := range []struct {
		key      [capture.AnonymiserKeyLen]byte
		in, want string
	}{
		{sampleKey(), "128.11.68.132", "135.242.180.132"},
		{sampleKey(), "129.118.74.4", "134.136.186.123"},
		{sampleKey(), "130.132.252.244", "133.68.164.234"},
		{sampleKey(), "141.223.7.43", "141.167.8.160"},
		{sampleKey(), "141.233.145.108", "141.129.237.235"},
		{sampleKey(), "152.163.225.39", "151.140.114.167"},
		{sampleKey(), "192.102.249.13", "252.138.62.131"},
		{sampleKey(), "192.41.57.43", "252.222.221.184"},
		{sampleKey(), "205.188.248.25", "242.96.88.27"},
		{sampleKey(), "24.0.250.221", "100.15.198.226"},
		{sampleKey(), "64.34.154.117", "0.221.154.117"},
		{sampleKey(), "10.185.25.118", "117.161.29.118"},
		{sampleKey(), "::1", "78ff:f001:9fc0:20df:8380:b1f1:704:ed"},
		{sampleKey(), "::ffff", "78ff:f001:9fc0:20df:8380:b1f1:704:f838"},
		{sampleKey(), "2001:db8::1", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e"},
		{counted, "192.0.2.1", "2.90.93.17"},
		{counted, "2001:db8::1", "dd92:2c44:3fc0:ff1e:7ff9:c7f0:8180:7e00"},
		{readable, "192.0.2.1", "192.0.125.244"},
		{readable, "2001:db8::1", "27fe:8bc7:fee:1e:1e1f:f0fe:f0e1:83fd"},
	} {
		if got := capture.NewAnonymiser(c.key).Addr(netip.MustParseAddr(c.in)); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s becomes %v, want %s", c.in, got, c.want)
		}
	}
	if got := capture.NewAnonymiser(counted).Addr(netip.MustParseAddr("2001:db8::1%eth0")); got.Zone() != "eth0" {
		t.Error(got)
	}
	if got := capture.NewAnonymiser(counted).Addr(netip.Addr{}); got.IsValid() {
		t.Error(got)
	}
}

// shared is how many leading bits two addresses have in common.
func shared(a, b netip.Addr) int {
	x, y := a.As16(), b.As16()
	for i := range x {
		if x[i] != y[i] {
			return i*8 + bits.LeadingZeros8(x[i]^y[i])
		}
	}
	return 128
}

// TestPrefixesArePreserved holds pairs of addresses with any number of common bits
// against each other, with prefixes kept and without.
func TestPrefixesArePreserved(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	addr := func(v4 bool) netip.Addr {
		var b [16]byte
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if v4 {
			return netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrFrom16(b)
	}
	special := capture.SpecialPrefixes()
	for _, keep := range [][]netip.Prefix{nil, special} {
		a := capture.NewAnonymiser(sampleKey(), keep...)
		for range 2000 {
			v4 := random.IntN(2) == 0
			x, y := addr(v4), addr(v4)
			if len(keep) > 0 && random.IntN(2) == 0 { // near something special
				p := special[random.IntN(len(special))]
				v4 = p.Addr().Is4()
				x, y = with(p, addr(v4)), addr(v4)
			}
			y = with(netip.PrefixFrom(x, random.IntN(x.BitLen()+1)), y)
			fx, fy := a.Addr(x), a.Addr(y)
			if shared(x, y) != shared(fx, fy) || fx.Is4() != x.Is4() {
				t.Fatalf("%v and %v share %d bits, %v and %v %d", x, y, shared(x, y), fx, fy, shared(fx, fy))
			}
			for _, p := range keep {
				if p.Contains(x) != p.Contains(fx) {
					t.Fatalf("%v becomes %v; %v", x, fx, p)
				}
			}
		}
	}
	a := capture.NewAnonymiser(sampleKey(), special...)
	for _, same := range []string{"0.0.0.0", "127.0.0.1", "255.255.255.255", "::", "::1"} {
		if got := a.Addr(netip.MustParseAddr(same)); got.String() != same {
			t.Errorf("%s becomes %v", same, got)
		}
	}
	for _, other := range []string{"10.1.0.100", "192.0.2.1", "198.51.100.7", "2001:db8::1", "fe80::1"} {
		if got := a.Addr(netip.MustParseAddr(other)); got.String() == other {
			t.Errorf("%s stays", other)
		}
	}
}

// What is behind a prefix that is kept may become anything.
func TestKeptPrefixesHideWhatIsBehind(t *testing.T) {
	flips := [24]int{}
	for n := range 200 {
		key := sampleKey()
		key[0], key[20] = byte(n), byte(n*7)
		got := capture.NewAnonymiser(key, netip.MustParsePrefix("10.0.0.0/8")).Addr(netip.MustParseAddr("10.0.0.0")).As4()
		for bit := range flips {
			flips[bit] += int(got[1+bit/8] >> (7 - bit%8) & 1)
		}
	}
	for bit, n := range flips {
		if n < 60 || n > 140 {
			t.Errorf("bit %d flips with %d of 200 keys", 8+bit, n)
		}
	}
}

// with is the address with the prefix's first bits.
func with(p netip.Prefix, a netip.Addr) netip.Addr {
	from, to := p.Addr().AsSlice(), a.AsSlice()
	for bit := range p.Bits() {
		mask := byte(0x80) >> (bit % 8)
		to[bit/8] = to[bit/8]&^mask | from[bit/8]&mask
	}
	out, _ := netip.AddrFromSlice(to)
	return out
}
