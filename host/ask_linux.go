package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	afpacket "github.com/mdlayher/packet"

	"pktdirector/packet"
)

// askRounds is how often Ask repeats its question, spread over the first half
// of the wait: a single broadcast may get lost.
const askRounds = 3

// Ask asks the segment at interface dev who has the address, by ARP or IPv6
// neighbour solicitation, collects answers for wait and returns the distinct
// hardware addresses that claim it, in the order in which they answered. The
// host that asks does not hear itself, nor a director that runs on it.
func Ask(ctx context.Context, dev string, target netip.Addr, wait time.Duration) ([]packet.MAC, error) {
	q, err := openQuestion(dev, target)
	if err != nil {
		return nil, err
	}
	defer q.conn.Close()
	return q.ask(ctx, wait)
}

// question is a raw socket on an interface, with the frame to send.
type question struct {
	dev    string
	target netip.Addr
	conn   *afpacket.Conn
	frame  []byte
}

// openQuestion opens a socket in the calling thread's network namespace.
func openQuestion(dev string, target netip.Addr) (*question, error) {
	ifi, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", dev, err)
	}
	if len(ifi.HardwareAddr) != len(packet.MAC{}) {
		return nil, fmt.Errorf("interface %s: has no Ethernet address, so nobody there answers ARP", dev)
	}
	if ifi.Flags&net.FlagUp == 0 {
		return nil, fmt.Errorf("interface %s: is down: ip link set %s up", dev, dev)
	}
	frame, err := askFrame(ifi, target)
	if err != nil {
		return nil, err
	}
	etherType := layers.EthernetTypeARP
	if target.Is6() {
		etherType = layers.EthernetTypeIPv6
	}
	c, err := afpacket.Listen(ifi, afpacket.Raw, int(etherType), nil)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("interface %s: raw packets need root or CAP_NET_RAW: %w", dev, err)
		}
		return nil, fmt.Errorf("interface %s: %w", dev, err)
	}
	return &question{dev, target, c, frame}, nil
}

// ask repeats the question over the first half of wait and listens to its end.
func (q *question) ask(ctx context.Context, wait time.Duration) ([]packet.MAC, error) {
	stop := context.AfterFunc(ctx, func() { _ = q.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	to := &afpacket.Addr{HardwareAddr: net.HardwareAddr(q.frame[:6])}
	start := time.Now()
	var found []packet.MAC
	for round := range askRounds {
		if _, err := q.conn.WriteTo(q.frame, to); err != nil {
			return found, fmt.Errorf("interface %s: send: %w", q.dev, err)
		}
		until := wait
		if round+1 < askRounds {
			until = wait / 2 * time.Duration(round+1) / askRounds
		}
		var err error
		if found, err = q.listen(ctx, start.Add(until), found); err != nil {
			return found, err
		}
	}
	return found, nil
}

// listen adds the machines that claim the target until then.
func (q *question) listen(ctx context.Context, until time.Time, found []packet.MAC) ([]packet.MAC, error) {
	buf := make([]byte, 2048)
	for time.Now().Before(until) { // a flood of other frames does not hold us
		if err := q.conn.SetReadDeadline(until); err != nil {
			return found, fmt.Errorf("interface %s: %w", q.dev, err)
		}
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
		n, _, err := q.conn.ReadFrom(buf)
		switch {
		case ctx.Err() != nil:
			return found, ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return found, nil
		case err != nil:
			return found, fmt.Errorf("interface %s: receive: %w", q.dev, err)
		}
		if mac, ok := claimIn(buf[:n], q.target); ok && !slices.Contains(found, mac) {
			found = append(found, mac)
		}
	}
	return found, nil
}

// askFrame builds the question. Its sender is the interface's own address, as
// a router's would be; where it has none, the unspecified one, as a host
// probes before it takes an address (RFC 5227 section 2.1.1).
func askFrame(ifi *net.Interface, target netip.Addr) ([]byte, error) {
	source := sourceFor(ifi, target)
	eth := &layers.Ethernet{SrcMAC: ifi.HardwareAddr, DstMAC: net.HardwareAddr(packet.Broadcast[:]), EthernetType: layers.EthernetTypeARP}
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if target.Is4() {
		err := gopacket.SerializeLayers(b, o, eth, &layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: layers.ARPRequest, SourceHwAddress: ifi.HardwareAddr, SourceProtAddress: source.AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice(),
		})
		return b.Bytes(), err
	}
	// The solicited-node group of the target and its MAC (RFC 4291 section
	// 2.7.1, RFC 2464 section 7).
	t := target.As16()
	group := net.IP{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, t[13], t[14], t[15]}
	eth.DstMAC, eth.EthernetType = net.HardwareAddr{0x33, 0x33, 0xff, t[13], t[14], t[15]}, layers.EthernetTypeIPv6
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: source.AsSlice(), DstIP: group}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	ns := &layers.ICMPv6NeighborSolicitation{TargetAddress: target.AsSlice()}
	if !source.IsUnspecified() { // RFC 4861 section 4.3: not with the unspecified source
		ns.Options = layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: ifi.HardwareAddr}}
	}
	err := gopacket.SerializeLayers(b, o, eth, ip, icmp, ns)
	return b.Bytes(), err
}

// sourceFor returns the interface's address to ask from: one in the target's
// subnet if there is one, else its first of that IP version, else the
// unspecified address.
func sourceFor(ifi *net.Interface, target netip.Addr) netip.Addr {
	source := netip.IPv4Unspecified()
	if target.Is6() {
		source = netip.IPv6Unspecified()
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return source
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		p, ok := prefixOf(n)
		if !ok || p.Addr().Unmap().Is4() != target.Is4() || p.Addr().Unmap() == target {
			continue
		}
		if n.Contains(target.AsSlice()) {
			return p.Addr().Unmap()
		}
		if source.IsUnspecified() {
			source = p.Addr().Unmap()
		}
	}
	return source
}

// claimIn returns the hardware address that frame, an ARP packet or a
// neighbour advertisement, says target has. Gratuitous ARP of either kind
// counts: its sender claims the address, too.
func claimIn(frame []byte, target netip.Addr) (packet.MAC, bool) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	if arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
		sender, ok := netip.AddrFromSlice(arp.SourceProtAddress)
		if ok && sender == target && len(arp.SourceHwAddress) == 6 {
			return packet.MAC(arp.SourceHwAddress), true
		}
		return packet.MAC{}, false
	}
	na, ok := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	if !ok || !net.IP(target.AsSlice()).Equal(na.TargetAddress) {
		return packet.MAC{}, false
	}
	for _, o := range na.Options {
		if o.Type == layers.ICMPv6OptTargetAddress && len(o.Data) >= 6 {
			return packet.MAC(o.Data[:6]), true
		}
	}
	// Without the option the frame's own source is who answered.
	if eth, ok := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet); ok && len(eth.SrcMAC) == 6 {
		return packet.MAC(eth.SrcMAC), true
	}
	return packet.MAC{}, false
}
