package testbed

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Tap counts the frames that pass an interface of a host and a filter. It
// takes no frames, it only counts: the kernel does it all.
type Tap struct {
	conn  *packet.Conn
	count uint64
}

// Watch says which frames a Tap counts.
type Watch func() []bpf.Instruction

// Offsets in an Ethernet frame that carries IPv4 or ARP.
const (
	etherTypeAt = 12
	ipAt        = 14
	ipProtoAt   = ipAt + 9
	ipSrcAt     = ipAt + 12
	ipDstAt     = ipAt + 16
	arpSenderAt = ipAt + 14
	tcpFlagsAt  = 13 // behind the IP header
)

// Tap starts to count the frames on the NIC of the host that the watch is for.
func (l *Lab) Tap(host, nic string, w Watch) (*Tap, error) {
	filter, err := bpf.Assemble(w())
	if err != nil {
		return nil, err
	}
	t := &Tap{}
	err = l.Do(host, func() error {
		ifi, err := net.InterfaceByName(nic)
		if err != nil {
			return err
		}
		t.conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("counting frames on %s of %s: %w", nic, host, err)
	}
	return t, nil
}

// Count returns how many frames have passed since the tap was opened. A
// super-frame counts once.
func (t *Tap) Count() (uint64, error) {
	s, err := t.conn.Stats() // since the last call; it includes what nobody read
	if err != nil {
		return 0, err
	}
	t.count += uint64(s.Packets)
	return t.count, nil
}

// Close ends the counting.
func (t *Tap) Close() error { return t.conn.Close() }

// FromVIP watches for TCP segments that have the VIP as source, whether
// they come or go.
func FromVIP(vip netip.Addr) Watch { return address(ipSrcAt, vip) }

// ToVIP watches for TCP segments to the VIP.
func ToVIP(vip netip.Addr) Watch { return address(ipDstAt, vip) }

func address(at uint32, a netip.Addr) Watch {
	return func() []bpf.Instruction {
		return watch(
			load(etherTypeAt, 2), equal(unix.ETH_P_IP),
			load(ipProtoAt, 1), equal(unix.IPPROTO_TCP),
			load(at, 4), equal(number(a)),
		)
	}
}

// Resets watches for TCP segments with the RST flag.
func Resets() []bpf.Instruction {
	return watch(
		load(etherTypeAt, 2), equal(unix.ETH_P_IP),
		load(ipProtoAt, 1), equal(unix.IPPROTO_TCP),
		bpf.LoadMemShift{Off: ipAt},
		bpf.LoadIndirect{Off: ipAt + tcpFlagsAt, Size: 1}, bits(0x04),
	)
}

// ARPFrom watches for ARP frames whose sender claims the address.
func ARPFrom(a netip.Addr) Watch {
	return func() []bpf.Instruction {
		return watch(load(etherTypeAt, 2), equal(unix.ETH_P_ARP), load(arpSenderAt, 4), equal(number(a)))
	}
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// watch joins steps to a program: a frame that one of the tests refuses is not
// counted. A test is an instruction whose false branch still has no aim. Frames
// for other machines, which a bridge floods now and then, never count.
func watch(steps ...bpf.Instruction) []bpf.Instruction {
	prog := append([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_OTHERHOST},
	}, steps...)
	refuse := len(prog) + 1 // behind the instruction that accepts
	for i, in := range prog {
		if j, ok := in.(bpf.JumpIf); ok {
			j.SkipFalse = uint8(refuse - i - 1)
			prog[i] = j
		}
	}
	return append(prog, bpf.RetConstant{Val: 128}, bpf.RetConstant{})
}

func load(at uint32, size int) bpf.Instruction { return bpf.LoadAbsolute{Off: at, Size: size} }

func equal(v uint32) bpf.Instruction { return bpf.JumpIf{Cond: bpf.JumpEqual, Val: v} }

func bits(v uint32) bpf.Instruction { return bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: v} }
