package dataplane_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pktdirector/dataplane"
	"pktdirector/image"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// imageOf writes a director's image.
func imageOf(d *dataplane.Director, now time.Duration) []byte {
	b := image.AppendHead(nil)
	head := len(b)
	m := d.Image(now, false)
	for i := range m.Parts() {
		b = m.AppendPart(b, i, i)
	}
	return image.AppendEnd(b, m.Parts(), int64(len(b)-head))
}

// inTurn and atOnce are ways to read parts.
func inTurn(n int, do func(int) error) error {
	for i := range n {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

func atOnce(n int, do func(int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// restoredOf reads an image, with options that differ from the default ones as o
// says.
func restoredOf(file []byte, o dataplane.Options, each func(int, func(int) error) error) (*dataplane.Restored, error) {
	parts, err := image.Parts(file)
	if err != nil {
		return nil, err
	}
	return dataplane.Restore(parts, func(uint64) dataplane.Options { o.Forwarders = forwarders(); return o }, each)
}

// connsOf lists a director's connections in an order of their own.
func connsOf(d *dataplane.Director) []string {
	var all []string
	d.Conns(func(c dataplane.ConnStatus) bool { all = append(all, fmt.Sprint(c)); return true })
	slices.Sort(all)
	return all
}

// sameDirector compares all that can be seen of two directors.
func sameDirector(t testing.TB, when string, want, got *dataplane.Director) bool {
	t.Helper()
	ok := true
	same := func(what string, a, b any) {
		t.Helper()
		if diff := cmp.Diff(a, b, cmp.Comparer(func(a, b packet.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s differ (-first +restored):\n%s", when, what, diff)
			ok = false
		}
	}
	same("services", want.Status(), got.Status())
	same("connections", connsOf(want), connsOf(got))
	same("verdicts", want.Verdicts(), got.Verdicts())
	same("settings", want.Tunables(), got.Tunables())
	same("tables", [3]int{want.Table().Connections, want.Table().Templates, int(want.Table().Evicted)}, [3]int{got.Table().Connections, got.Table().Templates, int(got.Table().Evicted)})
	same("choices", want.Choices(), got.Choices())
	a, ar := want.Totals()
	b, br := got.Totals()
	same("totals", []lvs.Stats{a, ar}, []lvs.Stats{b, br})
	return ok
}

// twins are two players of one script; one's director is restored from an image
// in the middle.
func playTwins(t testing.TB, text []byte, swap int) {
	var twins [2]*player
	for i := range twins {
		s := &script{text}
		how := int(s.byte())
		twins[i] = &player{arena: newArena(t, how), t: t, s: s}
	}
	for step := 0; !twins[0].s.done(); step++ {
		if step == swap {
			p := twins[1]
			how := int(text[0])
			r, err := restoredOf(imageOf(p.d, p.now), dataplane.Options{Decisions: how&1 != 0, ConnMax: 8 << (how >> 3 & 7)}, inTurn)
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			if r.LeftOut != 0 {
				t.Errorf("step %d: %d connections were left out of an image of one moment", step, r.LeftOut)
			}
			r.TakeWaiting(p.d)
			p.d = r.Director
			for _, p := range twins {
				p.workers = []*dataplane.Worker{p.d.NewWorker(), p.d.NewWorker()}
			}
			if !sameDirector(t, fmt.Sprintf("at step %d", step), twins[0].d, twins[1].d) {
				return
			}
			if err := p.d.CheckCounts(); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range twins {
			p.step()
			if p.check(); t.Failed() {
				return
			}
		}
		for _, p := range twins { // neighbours are asked for in no order
			p.left = slices.DeleteFunc(p.left, func(q *packet.Packet) bool { return q.DstMAC.IsMulticast() })
		}
		if a, b := twins[0], twins[1]; len(a.left) != len(b.left) || !slices.EqualFunc(a.left, b.left, func(a, b *packet.Packet) bool {
			return a.Link == b.Link && a.DstMAC == b.DstMAC && bytes.Equal(a.Bytes(), b.Bytes())
		}) {
			t.Fatalf("step %d, restored at %d: other packets left:\n%v\n%v", step, swap, summaries(a.left), summaries(b.left))
		}
		if step > swap && (step-swap)%16 == 1 && !sameDirector(t, fmt.Sprintf("step %d, restored at %d", step, swap), twins[0].d, twins[1].d) {
			return
		}
	}
	sameDirector(t, "at the end", twins[0].d, twins[1].d)
	twins[1].pass(9 * time.Hour)
	twins[1].check()
	if s := twins[1].d.Table(); s.Connections+s.Templates != 0 {
		t.Errorf("%d connections and %d templates are left", s.Connections, s.Templates)
	}
	if n := twins[1].d.HelperEntries(); n != 0 {
		t.Errorf("the FTP helper keeps %d records", n)
	}
}

// A director that was restored from an image of another does what the other does,
// whatever comes.
func TestRestoredDirectorBehavesAlike(t *testing.T) {
	for i, seed := range engineSeeds() {
		for _, swap := range []int{3, 20} {
			t.Run(fmt.Sprintf("seed %d at %d", i, swap), func(t *testing.T) { playTwins(t, seed, swap) })
		}
	}
	rounds := 150
	if testing.Short() {
		rounds = 15
	}
	for i := range rounds {
		r := rand.New(rand.NewPCG(uint64(i), 5))
		text := make([]byte, 1500)
		for j := range text {
			text[j] = byte(r.Uint32())
		}
		t.Run(fmt.Sprintf("random %d", i), func(t *testing.T) { playTwins(t, text, 20+r.IntN(100)) })
		if t.Failed() {
			return
		}
	}
}

// FuzzImage plays a script to two directors, one of which is restored from its
// image on the way; see playTwins.
func FuzzImage(f *testing.F) {
	for _, s := range engineSeeds() {
		f.Add(s, uint8(4))
	}
	f.Fuzz(func(t *testing.T, text []byte, swap uint8) {
		if len(text) > 2048 || len(text) == 0 {
			return
		}
		playTwins(t, text, int(swap))
	})
}

// busyImage is the image of a director with something of everything.
func busyImage(t testing.TB) []byte {
	p := busyPlayer(t)
	return imageOf(p.d, p.now)
}

func busyPlayer(t testing.TB) *player {
	p := &player{arena: newArena(t, 0x3f), t: t, s: &script{}}
	for port := uint16(0); port < 8; port++ {
		for dst := uint16(80); dst < 89; dst++ {
			for _, to := range []string{vip, vip6} {
				from := "198.51.100.10"
				if to == vip6 {
					from = "2001:db8:1::10"
				}
				for _, isUDP := range []bool{false, true} {
					q := packettest.Build(t, packettest.Spec{Src: packet.Endpoint(addr(from), 40000+port), Dst: packet.Endpoint(addr(to), dst), UDP: isUDP, Flags: packet.SYN, Seq: 1000})
					q.Link = clientLink
					p.process(q)
				}
			}
		}
	}
	for _, line := range []string{"", "PASV\r\n", "EPSV\r\n"} {
		spec := packettest.Spec{Src: client + ":40000", Dst: vip + ":21", Flags: packet.SYN, Seq: 1000}
		if line != "" {
			spec.Flags, spec.Payload = packet.ACK, []byte(line)
		}
		q := packettest.Build(t, spec)
		q.Link = clientLink
		p.process(q)
	}
	reply := packettest.Build(t, packettest.Spec{Src: rip(1) + ":21", Dst: client + ":40000", Flags: packet.ACK, Seq: 5, Ack: 1, Payload: []byte("227 Entering Passive Mode (192,0,2,11,156,65).\r\n")})
	reply.Link = serverLink
	p.process(reply)
	p.pass(3 * time.Second)
	svc := p.known[0]
	if err := p.d.DeleteServer(svc.ServiceKey, svc.Servers[0].ServerKey); err != nil {
		t.Fatal(err)
	}
	if err := p.d.DeleteService(p.known[1].ServiceKey); err != nil {
		t.Fatal(err)
	}
	if err := p.d.ZeroCounters(svc.ServiceKey); err != nil {
		t.Fatal(err)
	}
	return p
}

// An image is the same whoever reads it, and in whatever order.
func TestImageIsReadAtOnce(t *testing.T) {
	p := busyPlayer(t)
	file := imageOf(p.d, p.now)
	r, err := restoredOf(file, dataplane.Options{ConnMax: 8 << 7}, atOnce)
	if err != nil {
		t.Fatal(err)
	}
	sameDirector(t, "read at once", p.d, r.Director)
	if err := r.CheckCounts(); err != nil {
		t.Error(err)
	}
	if r.Now != p.now {
		t.Errorf("the time is %v, want %v", r.Now, p.now)
	}
	if n := p.d.HelperEntries(); n == 0 || n != r.HelperEntries() {
		t.Errorf("%d and %d records of FTP", n, r.HelperEntries())
	}
	if len(connsOf(p.d)) < 100 {
		t.Fatalf("only %d connections", len(connsOf(p.d)))
	}
}

// A damaged image is refused as a whole.
func TestDamagedImages(t *testing.T) {
	file := busyImage(t)
	read := func(b []byte) error {
		_, err := restoredOf(b, dataplane.Options{}, inTurn)
		return err
	}
	if err := read(file); err != nil {
		t.Fatal(err)
	}
	step := max(1, len(file)/997)
	for at := 0; at < len(file); at += step {
		damaged := bytes.Clone(file)
		damaged[at] ^= 1 << (at % 8)
		if read(damaged) == nil {
			t.Errorf("bit %d of byte %d flipped: taken", at%8, at)
		}
		if read(file[:at]) == nil {
			t.Errorf("cut at byte %d: taken", at)
		}
	}
	if read(append(bytes.Clone(file), 0)) == nil {
		t.Error("a byte too many: taken")
	}
	for name, edit := range map[string]func([]byte){
		"another version": func(b []byte) { b[8]++ },
		"another magic":   func(b []byte) { b[0]++ },
		"a huge part":     func(b []byte) { copy(b[12+8:], []byte{255, 255, 255, 255, 255, 255, 255, 127}) },
		"a part beyond":   func(b []byte) { copy(b[12+8:], []byte{255, 255, 255, 255, 255, 255, 255, 255}) },
	} {
		damaged := bytes.Clone(file)
		edit(damaged)
		if read(damaged) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// edited returns an image with bytes of its parts replaced and right checksums.
func edited(t testing.TB, file []byte, s *script) []byte {
	parts, err := image.Parts(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range parts {
		parts[i].Payload = bytes.Clone(parts[i].Payload)
	}
	for !s.done() {
		p := &parts[s.below(len(parts))]
		if s.byte()%8 == 0 {
			*p = parts[s.below(len(parts))]
			p.Payload = bytes.Clone(p.Payload)
			continue
		}
		if len(p.Payload) == 0 {
			continue
		}
		at := int(s.word()) % len(p.Payload)
		switch how := s.byte(); how % 4 {
		case 0:
			p.Payload = p.Payload[:at]
		case 1:
			p.Payload = slices.Insert(p.Payload, at, s.bytes(int(s.byte()))...)
		case 2:
			p.Payload[at] ^= 1 << (how >> 5)
		default:
			copy(p.Payload[at:], s.bytes(1+int(how>>4)))
		}
	}
	b := image.AppendHead(nil)
	head := len(b)
	for i, p := range parts {
		b = image.AppendPart(b, p.Kind, i, func(b []byte) []byte { return append(b, p.Payload...) })
	}
	return image.AppendEnd(b, len(parts), int64(len(b)-head))
}

// FuzzRestore reads images whose checksums are right and whose contents are not.
// What is taken keeps its promises under a script.
func FuzzRestore(f *testing.F) {
	file := busyImage(f)
	f.Add([]byte{}, []byte{1, 2, 3})
	f.Add([]byte{0, 1, 0, 9, 2, 3, 1, 0, 200, 0xff, 255, 255, 255, 255}, engineSeeds()[0])
	f.Fuzz(func(t *testing.T, edits, text []byte) {
		if len(edits) > 512 || len(text) > 512 {
			return
		}
		r, err := restoredOf(edited(t, file, &script{edits}), dataplane.Options{ConnMax: 64}, inTurn)
		if err != nil {
			return
		}
		p := &player{arena: newArena(t, 0), t: t, s: &script{text}}
		p.d, p.now = r.Director, max(r.Now, 0)
		p.links(1500)
		p.host(mustPrefix("192.0.2.1/32").Addr())
		p.workers = []*dataplane.Worker{p.d.NewWorker(), p.d.NewWorker()}
		if err := p.d.CheckCounts(); err != nil {
			t.Fatal(err)
		}
		for !p.s.done() && p.now < time.Hour*24*365 {
			p.broken = true // addresses may be anything
			p.step()
			if err := p.d.CheckCounts(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func BenchmarkImage(b *testing.B) {
	const n = 1_000_000
	d := dataplane.New(dataplane.Options{Seed: 1, ConnMax: n, Forwarders: forwarders()})
	d.SetLinks(links(1500))
	d.SetHost(dataplane.HostTable{Routes: routes()})
	learnNeighbours(d, 4)
	svc := service("rr", lvs.Masq, 4)
	if err := d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{svc}}); err != nil {
		b.Fatal(err)
	}
	w := d.NewWorker()
	syn := packettest.Build(b, packettest.Spec{Src: client + ":1", Dst: vip + ":80", Flags: packet.SYN})
	for i := range n {
		q := new(packet.Packet)
		q.CopyFrom(syn)
		ip := q.Bytes()
		ip[15], ip[20], ip[21] = byte(i>>16), byte(i>>8), byte(i)
		ip[14] = 101
		q.Link = clientLink
		repair(q.Bytes())
		w.Process([]*packet.Packet{q}, 0)
	}
	b.Logf("%d connections", d.Table().Connections)
	b.ResetTimer()
	for b.Loop() {
		file := imageOf(d, 0)
		parts, err := image.Parts(file)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := dataplane.Restore(parts, func(uint64) dataplane.Options { return dataplane.Options{ConnMax: n, Forwarders: forwarders()} }, atOnce); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(file))/float64(d.Table().Connections), "B/conn")
	}
}
