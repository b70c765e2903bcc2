package endpoint_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/packet"
	"pktdirector/testbed"
	"pktdirector/testbed/endpoint"
	"pktdirector/testbed/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

const nic = "lan"

// Addresses of the test: director and real server share a segment.
func server() netip.Addr { return netip.MustParseAddr("10.2.0.11") }
func vip() netip.Addr    { return netip.MustParseAddr("203.0.113.80") }

// Packets that a director wrapped reach the server's own sockets, whole ones
// and those that came in pieces.
func TestEndpoint(t *testing.T) {
	for _, decap := range []testbed.Decap{testbed.DecapTundev, testbed.DecapVeth} {
		t.Run(string(decap), func(t *testing.T) {
			if decap == testbed.DecapTundev {
				if err := testbed.TundevUsable(); err != nil {
					nstest.Require(t, err.Error())
				}
			}
			director, rs := machines(t, decap)
			run(t, rs, decap)
			got := listen(t, rs)
			for name, tt := range map[string]struct {
				payload      int
				dontFragment bool
			}{
				"small, not to be fragmented":        {100, true},
				"as large as it gets, in one piece":  {1500 - 20 - 28, true},
				"small, may be fragmented":           {100, false},
				"too large with its outer header":    {1500 - 28, false},
				"a size that neither header divides": {777, true},
			} {
				t.Run(name, func(t *testing.T) {
					want := strings.Repeat("x", tt.payload)
					send(t, director, want, tt.dontFragment)
					buf := make([]byte, 2000)
					got.SetReadDeadline(time.Now().Add(5 * time.Second))
					n, _, err := got.ReadFrom(buf)
					if err != nil {
						t.Fatal(err)
					}
					if string(buf[:n]) != want {
						t.Errorf("%d bytes arrived, want %d", n, len(want))
					}
				})
			}
		})
	}
}

// machines makes a director that is nothing but a sender, and a real server.
func machines(t *testing.T, decap testbed.Decap) (director, rs *nstest.Namespace) {
	t.Helper()
	director, rs = nstest.New(t), nstest.New(t)
	if err := director.Do(func() error {
		a := netlink.NewLinkAttrs()
		a.Name = nic
		v := netlink.NewVeth(a)
		v.PeerName, v.PeerNamespace = nic, netlink.NsFd(rs.FD())
		return errors.Join(netlink.LinkAdd(v),
			testbed.AddAddr{Dev: nic, Prefix: netip.MustParsePrefix("10.2.0.1/24")}.Apply(), testbed.LinkUp{Dev: nic}.Apply())
	}); err != nil {
		t.Fatal(err)
	}
	if err := rs.Do(func() error {
		c := testbed.HostConfig{Role: testbed.RealServer, VIP: vip(), Gateway: netip.MustParseAddr("10.2.0.1"),
			NICs: []testbed.NIC{{Segment: nic, Address: netip.PrefixFrom(server(), 24)}}}
		if err := c.Mode.UnmarshalText([]byte("tun")); err != nil {
			return err
		}
		l, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		c.NICs[0].MAC.MAC = packet.MAC(l.Attrs().HardwareAddr)
		ops, err := c.Plan(testbed.Facts{NICs: map[packet.MAC]string{c.NICs[0].MAC.MAC: nic}, Decap: decap})
		for _, op := range ops {
			err = errors.Join(err, op.Apply())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return director, rs
}

// run runs an endpoint on the real server until the test ends.
func run(t *testing.T, rs *nstest.Namespace, decap testbed.Decap) {
	t.Helper()
	c := endpoint.Config{NIC: nic, Device: testbed.DecapDevice, Log: slog.New(slog.DiscardHandler)}
	if decap == testbed.DecapVeth {
		c.Feed = testbed.DecapFeed
	}
	var e *endpoint.Endpoint
	if err := rs.Do(func() (err error) {
		e, err = endpoint.Open(c)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// listen opens a UDP socket on the VIP.
func listen(t *testing.T, rs *nstest.Namespace) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	if err := rs.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", vip().String()+":7")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// send sends a datagram to the VIP, wrapped by the director's kernel, which
// fragments what is too large.
func send(t *testing.T, director *nstest.Namespace, payload string, dontFragment bool) {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 63, Protocol: layers.IPProtocolUDP, SrcIP: []byte{198, 51, 100, 10}, DstIP: vip().AsSlice()}
	udp := &layers.UDP{SrcPort: 1000, DstPort: 7}
	udp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, udp, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	if err := director.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(packet.IPIP))
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		discover := unix.IP_PMTUDISC_DONT
		if dontFragment {
			discover = unix.IP_PMTUDISC_DO
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, discover); err != nil {
			return err
		}
		return unix.Sendto(fd, b.Bytes(), 0, &unix.SockaddrInet4{Addr: server().As4()})
	}); err != nil {
		t.Fatal(err)
	}
}

func TestEndpointNamesWhatIsMissing(t *testing.T) {
	_, err := endpoint.Open(endpoint.Config{NIC: "moon0", Device: "tunl0", Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "moon0") {
		t.Errorf("error %v, want one that names the interface", err)
	}
}
