package host_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/host"
)

// FuzzStateFile reads state files: what is taken is written and read again the
// same, and never leads out of the network's settings.
func FuzzStateFile(f *testing.F) {
	for _, s := range []string{
		`[]`, `null`, `[{}]`, `[{"sysctl":{"Path":"/proc/sys/net/ipv4/ip_forward","Old":"1","New":"0"}}]`,
		`[{"sysctl":{"Path":"/proc/sys/net/../../../etc/passwd","Old":"1","New":"0"}}]`,
		`[{"rule":{"Priority":100,"Table":200,"Interface":"eth0","From":"192.0.2.0/24","Proto":6,"Port":80,"LastPort":90}}]`,
		`[{"rule":{"Priority":100,"Table":200,"From":"2001:db8::/64","V6":true}},{"proxy":{"Interface":"eth0","Addr":"192.0.2.10"}}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		once, err := host.ParseState(data)
		if err != nil {
			return
		}
		twice, err := host.ParseState(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s is read again as %s (%v)", once, twice, err)
		}
	})
}

func TestAStateFileLeadsNowhereElse(t *testing.T) {
	for _, path := range []string{"/etc/passwd", "/proc/sys/net/../../../etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sys/net//x", ""} {
		_, err := host.ParseState([]byte(`[{"sysctl":{"Path":"` + path + `","Old":"1","New":"0"}}]`))
		if err == nil || !strings.Contains(err.Error(), "/proc/sys/net/") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// FuzzClaim reads frames that come while somebody is asked for an address.
func FuzzClaim(f *testing.F) {
	arp := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 1, 192, 0, 2, 10, 0, 0, 0, 0, 0, 0, 192, 0, 2, 10)
	f.Add(arp)
	target := netip.MustParseAddr("2001:db8::10")
	nd := append(bytes.Repeat([]byte{2}, 12), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255)
	nd = append(append(nd, target.AsSlice()...), target.AsSlice()...)
	nd = append(nd, 136, 0, 0, 0, 0x60, 0, 0, 0)
	nd = append(append(nd, target.AsSlice()...), 2, 1, 2, 0, 0, 0, 0, 7)
	f.Add(nd)
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, target := range []netip.Addr{netip.MustParseAddr("192.0.2.10"), target} {
			if mac, ok := host.ClaimIn(frame, target); !ok && !mac.IsZero() {
				t.Fatalf("%v although nobody claims %v", mac, target)
			}
		}
	})
}

// FuzzNeighbourMessage reads what the kernel tells of its neighbours.
func FuzzNeighbourMessage(f *testing.F) {
	header := []byte{2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 1} // IPv4, index 2, reachable
	f.Add(uint16(28), append(header, 8, 0, 1, 0, 192, 0, 2, 11, 10, 0, 2, 0, 2, 0, 0, 0, 0, 11, 0, 0))
	f.Add(uint16(29), append(header, 8, 0, 1, 0, 192, 0, 2, 11))
	f.Add(uint16(28), []byte{2})
	f.Add(uint16(24), []byte{})
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		if len(data) > 1<<12 {
			return
		}
		host.Heard(kind, data, func(n dataplane.Neighbour) {
			if !n.Addr.IsValid() || n.Link != 0 {
				t.Fatalf("learned %+v", n)
			}
		})
	})
}

// FuzzMeminfo reads /proc/meminfo.
func FuzzMeminfo(f *testing.F) {
	f.Add("MemTotal: 2030576 kB\nMemFree: 40000 kB\nBuffers: 500 kB\n")
	f.Add("MemFree: -1 kB\nBuffers: 9223372036854775807 kB\n")
	f.Add("MemFree:\nBuffers")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			return
		}
		if kib, err := host.AvailableKiB(text); kib < 0 || err != nil && kib != 0 {
			t.Fatalf("%d kB are available (%v)", kib, err)
		}
	})
}
