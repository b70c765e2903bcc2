package capture

import (
	"crypto/aes"
	"crypto/cipher"
	"net/netip"
)

// Anonymiser replaces addresses by others, each always by the same and no two by
// one, so that two which share a prefix of n bits, and no more, still do: subnets
// stay subnets. Who has the key can undo it, and who knows some of the addresses
// behind it learns prefixes of the others: it hides networks from strangers, not
// from those who were there.
//
// The algorithm is Crypto-PAn (J. Xu, J. Fan, M. Ammar, S. Moon: Prefix-Preserving
// IP Address Anonymization, ICNP 2002). Bit n of an address is flipped by a
// function of the n bits before it: the first bit of the AES encryption of a block
// that begins with them and is filled from a secret pad. For IPv6 all 128 bits are
// treated so.
type Anonymiser struct {
	block cipher.Block
	pad   [aes.BlockSize]byte
	keep  []netip.Prefix
}

// AnonymiserKeyLen is the length of a key in bytes: 16 of AES-128, 16 of the pad.
const AnonymiserKeyLen = 32

// NewAnonymiser returns an anonymiser with a secret key. Addresses in the prefixes
// of keep get others of the same prefix, and no other address gets there: none of
// a prefix's own bits flips, nor any on the way there. Without any it is Crypto-PAn
// as published.
func NewAnonymiser(key [AnonymiserKeyLen]byte, keep ...netip.Prefix) *Anonymiser {
	block, err := aes.NewCipher(key[:aes.BlockSize])
	if err != nil {
		panic(err) // of lengths other than 16, 24 and 32 alone
	}
	a := &Anonymiser{block: block}
	block.Encrypt(a.pad[:], key[aes.BlockSize:])
	for _, p := range keep {
		a.keep = append(a.keep, p.Masked())
	}
	return a
}

// SpecialPrefixes are those whose addresses mean something to hosts and to the
// director: with them kept, a packet that had a source no host sends from still
// has one, and none else. Private networks stay private.
func SpecialPrefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/32", "0.0.0.0/8", "10.0.0.0/8", "127.0.0.1/32", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
		"224.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32",
		"::1/128", "::/128", "::/96", "::ffff:0:0/96", "64:ff9b::/96", "fc00::/7", "fe80::/10", "ff02::/16", "ff00::/8",
	} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// Addr returns what stands for an address. Zones stay.
func (a *Anonymiser) Addr(ip netip.Addr) netip.Addr {
	if !ip.IsValid() {
		return ip
	}
	var bytes [16]byte
	n := copy(bytes[:], ip.AsSlice())
	out := bytes
	var in, flip [aes.BlockSize]byte
	for bit := range n * 8 {
		if a.onTheWay(ip, bit) {
			continue
		}
		in = a.pad
		copy(in[:], bytes[:bit/8])
		mask := byte(0xff) << (8 - bit%8)
		in[bit/8] = bytes[bit/8]&mask | a.pad[bit/8]&^mask
		a.block.Encrypt(flip[:], in[:])
		out[bit/8] ^= flip[0] >> 7 << (7 - bit%8)
	}
	if n == 4 {
		return netip.AddrFrom4([4]byte(out[:4]))
	}
	return netip.AddrFrom16(out).WithZone(ip.Zone())
}

// onTheWay reports whether the first n bits of an address lead to a prefix that
// is kept, so that the bit behind them must stay.
func (a *Anonymiser) onTheWay(ip netip.Addr, n int) bool {
	for _, p := range a.keep {
		if n >= p.Bits() || p.Addr().Is4() != ip.Is4() {
			continue
		}
		if head, err := p.Addr().Prefix(n); err == nil && head.Contains(ip.WithZone("")) {
			return true
		}
	}
	return false
}
