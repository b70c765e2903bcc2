package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	labpacket "pktdirector/packet"
	"pktdirector/testbed/endpoint"
	"pktdirector/testbed/nstest"
)

// sniffer reads the frames that the director sent to a host's interface. They
// are complete only where the director's interfaces have their transmit offloads
// off: a veth pair otherwise carries unfinished checksums and super-frames.
type sniffer struct {
	conn   *packet.Conn
	from   net.HardwareAddr
	frames [][]byte
	done   chan struct{}
}

func (l tunnelLab) sniff(t *testing.T, host, nic, directorNIC string) *sniffer {
	t.Helper()
	mac := labNIC(directorNIC, 2).MAC.MAC
	s := &sniffer{from: mac[:], done: make(chan struct{})}
	if err := l.Do(host, func() error {
		ifi, err := net.InterfaceByName(nic)
		if err != nil {
			return err
		}
		s.conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_ALL, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with stop
		defer close(s.done)
		buf := make([]byte, 1<<17)
		for {
			n, _, err := s.conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if n >= 14 && bytes.Equal(buf[6:12], s.from) {
				s.frames = append(s.frames, bytes.Clone(buf[:n]))
			}
		}
	}()
	return s
}

// stop ends listening and returns what was heard.
func (s *sniffer) stop() [][]byte {
	time.Sleep(20 * time.Millisecond) // for the last frames
	s.conn.SetReadDeadline(time.Now())
	<-s.done
	s.conn.Close()
	return s.frames
}

// withoutOffloads switches the transmit offloads of the director's interfaces
// off (ethtool -K NIC tx off).
func (l tunnelLab) withoutOffloads(t *testing.T) {
	t.Helper()
	const setTxCsum = 0x17 // ETHTOOL_STXCSUM: an ethtool_value, command and data
	if err := l.Do("director", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, nic := range []string{"front", "back"} {
			value := [2]uint32{setTxCsum, 0}
			req := struct {
				name [unix.IFNAMSIZ]byte
				data unsafe.Pointer
				_    [16]byte
			}{data: unsafe.Pointer(&value)}
			copy(req.name[:], nic)
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
				return fmt.Errorf("ethtool -K %s tx off: %w", nic, errno)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// insideGUE returns the packet in a GUE datagram to port 6080, with the frame's
// Ethernet header: tshark does not look into GUE.
func insideGUE(frame []byte) ([]byte, bool) {
	const mac, udpLen, gueLen = 14, 8, 4
	proto, udp := mac+9, mac+20
	if labpacket.EtherType(binary.BigEndian.Uint16(frame[12:])) == labpacket.EtherIPv6 {
		proto, udp = mac+6, mac+40
	}
	in := udp + udpLen + gueLen
	if len(frame) <= in || labpacket.Proto(frame[proto]) != labpacket.UDP || binary.BigEndian.Uint16(frame[udp+2:]) != 6080 {
		return nil, false
	}
	kind := labpacket.EtherIPv4
	if frame[in]>>4 == 6 {
		kind = labpacket.EtherIPv6
	}
	return append(binary.BigEndian.AppendUint16(bytes.Clone(frame[:12]), uint16(kind)), frame[in:]...), true
}

// datagrams sends a UDP datagram and an SCTP INIT to the VIP. Nobody listens for
// SCTP.
func (l tunnelLab) datagrams(t *testing.T, f forwarding) {
	t.Helper()
	ip, network := net.ParseIP(f.vip), "ip4:132"
	if f.v6() {
		network = "ip6:132"
	}
	init := make([]byte, 12+20) // common header, INIT chunk (RFC 9260 sections 3.1, 3.3.2)
	binary.BigEndian.PutUint16(init, 40000)
	binary.BigEndian.PutUint16(init[2:], 9)
	init[12], init[15] = 1, 20
	copy(init[16:], []byte{1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 5, 6, 7, 8}) // tag, window, streams, TSN
	labpacket.PutSCTPChecksum(init)
	if err := l.Do("client", func() error {
		udp, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: ip, Port: 7})
		if err != nil {
			return err
		}
		defer udp.Close()
		if _, err := udp.Write(bytes.Repeat([]byte("datagram"), 50)); err != nil {
			return err
		}
		sctp, err := net.DialIP(network, nil, &net.IPAddr{IP: ip})
		if err != nil {
			return err
		}
		defer sctp.Close()
		_, err = sctp.Write(init)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// checksums are the fields in which tshark says what it thinks of one.
var checksums = [...]string{"ip.checksum.status", "tcp.checksum.status", "udp.checksum.status", "sctp.checksum.status",
	"gre.checksum.status", "icmp.checksum.status", "icmpv6.checksum.status"}

// minusZero is what tshark calls a TCP checksum of 0xffff that adds up: it wants 0
// there (RFC 1624). Linux, which finishes checksums where the device does not, writes
// 0xffff for UDP and TCP alike, in one of 65,536 segments.
const minusZero = "tcp.checksum.ffff"

// opinion is what tshark says about a frame.
type opinion struct {
	malformed bool
	good, bad [len(checksums)]bool
}

// complains reports whether something is wrong. Errors of ICMP quote packets cut,
// with checksums that nobody can verify any more: only those of the outer headers
// and of the quoted IPv4 header count there.
func (o opinion) complains() bool {
	bad := o.bad
	if icmp, icmpv6 := len(checksums)-2, len(checksums)-1; o.good[icmp] || o.bad[icmp] || o.good[icmpv6] || o.bad[icmpv6] {
		bad[1], bad[2], bad[3] = false, false, false
	}
	return o.malformed || bad != [len(checksums)]bool{}
}

// tshark returns what Debian's tshark says about each frame.
func tshark(t *testing.T, frames [][]byte) []opinion {
	t.Helper()
	file := filepath.Join(t.TempDir(), "director.pcap")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(1<<17, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for _, b := range frames {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, 0), CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-r", file, "-n", "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-o", "sctp.checksum:CRC-32C", "-T", "fields", "-E", "separator=|", "-E", "quote=n", "-E", "occurrence=a", "-e", "_ws.malformed", "-e", minusZero,
		// tshark knows no GUE, and would read it as whatever else uses the port it
		// was sent from, a hash of the flow. What clients and servers say to each
		// other is random and, where segments are sent again, out of step.
		"-d", fmt.Sprintf("udp.port==%d,data", endpoint.GUEPort), "-d", "tcp.port==80,data", "-d", "udp.port==7,data"}
	for _, field := range checksums {
		args = append(args, "-e", field)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		detail := ""
		if exit, ok := err.(*exec.ExitError); ok {
			detail = string(exit.Stderr)
		}
		t.Fatalf("tshark: %v\n%s", err, detail)
	}
	var all []opinion
	for line := range strings.Lines(string(out)) {
		said := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(said) != 2+len(checksums) {
			t.Fatalf("tshark: %d fields, want %d: %q", len(said), 2+len(checksums), line)
		}
		o := opinion{malformed: said[0] != ""}
		for i, s := range said[2:] {
			o.good[i] = strings.Contains(s, "1")
			o.bad[i] = strings.Contains(s, "0")
		}
		if said[1] != "" {
			o.bad[1] = false
		}
		all = append(all, o)
	}
	if len(all) != len(frames) {
		t.Fatalf("tshark speaks of %d frames of %d", len(all), len(frames))
	}
	return all
}

// TestTsharkAgrees: a program that is not ours reads what the director sends in
// each kind of tunnel, NAT, FullNAT and direct routing, ICMP errors included, and finds no
// malformed packet and no wrong checksum.
func TestTsharkAgrees(t *testing.T) {
	if testing.Short() {
		return // it judges bytes, and other tests carry TCP by each of the ways
	}
	if _, err := exec.LookPath("tshark"); err != nil {
		nstest.Require(t, "tshark is missing: apt-get install tshark")
	}
	nstest.New(t)
	l := newTunnelLab(t).narrowed(t, 1400)
	l.withoutOffloads(t)
	var all [][]byte
	var whose []string // the forwarding of each
	ways := fullNATs()
	for _, f := range forwardings() {
		ways = append(ways, way{f, ""})
	}
	for _, w := range ways {
		f := w.forwarding
		t.Run(f.name, func(t *testing.T) {
			l.balance(t, f, w.service)
			front, back := l.sniff(t, "router", "front", "front"), l.sniff(t, "rs1", "back", "back")
			l.move(t, f, "upload", 60_000)
			l.move(t, f, "download", 20_000)
			l.datagrams(t, f)
			frames := append(front.stop(), back.stop()...)
			inside := 0
			for _, b := range frames {
				all, whose = append(all, b), append(whose, f.name)
				if in, ok := insideGUE(b); ok {
					inside++
					all, whose = append(all, in), append(whose, f.name+", inside")
				}
			}
			if len(frames) < 20 || strings.Contains(f.name, "gue") && inside < 20 {
				t.Errorf("the director sent %d frames, %d with GUE", len(frames), inside)
			}
		})
	}
	said := tshark(t, all)
	var good [len(checksums)]int
	for i, o := range said {
		if o.complains() {
			t.Errorf("%s: tshark complains about frame %d: %+v\n% x", whose[i], i+1, o, all[i][:min(len(all[i]), 128)])
		}
		for field, yes := range o.good {
			if yes {
				good[field]++
			}
		}
	}
	for field, n := range good {
		t.Logf("%s: good in %d of %d frames", checksums[field], n, len(all))
		if n < 20 {
			t.Errorf("%s: tshark found only %d right ones", checksums[field], n)
		}
		judgeSees(t, field, all, said)
	}
}

// TestTsharkTakesMinusZero shows tshark a segment whose checksum Linux has written
// as 0xffff, and the same one with another wrong checksum.
func TestTsharkTakesMinusZero(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		nstest.Require(t, "tshark is missing: apt-get install tshark")
	}
	frame, err := hex.DecodeString("020000000201020000000202" + "86dd" + "600cf1120020063f" + "20010db8000200000000000000000080" + "20010db800010000000000000000000a" +
		"0050961ca572600904b532138010003fffff0000" + "0101080a24e8820de783b955")
	if err != nil {
		t.Fatal(err)
	}
	wrong := slices.Clone(frame)
	wrong[len(wrong)-1] ^= 1
	if said := tshark(t, [][]byte{frame, wrong}); said[0].complains() || !said[1].complains() {
		t.Errorf("%+v", said)
	}
}

// judgeSees flips a bit in frames whose checksum tshark has found right, and it
// must find it wrong.
func judgeSees(t *testing.T, field int, frames [][]byte, said []opinion) {
	t.Helper()
	var spoilt [][]byte
	for i, b := range frames {
		if !said[i].good[field] || len(spoilt) == 20 {
			continue
		}
		at := len(b) - 1
		if field == 0 { // of an IPv4 header
			if b[12] != 8 {
				continue
			}
			at = 14 + 4 // its id
		}
		b = bytes.Clone(b)
		b[at] ^= 1
		spoilt = append(spoilt, b)
	}
	for i, o := range tshark(t, spoilt) {
		if !o.bad[field] || !o.complains() {
			t.Errorf("%s: tshark does not see that frame %d is spoilt: %+v\n% x", checksums[field], i+1, o, spoilt[i])
		}
	}
}
