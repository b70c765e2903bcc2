package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pktdirector/capture"
	"pktdirector/control"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// captured runs capture beside what do does once the director knows of it; a test that
// gives no count interrupts it then.
func captured(t *testing.T, shown *source, socket string, do func(), args ...string) (out, said string, err error) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var wg sync.WaitGroup
	wg.Go(func() { out, said, err = command(ctx, append([]string{"capture", "--control", socket}, args...)...) })
	for shown.events.Wanted()&control.PacketEvents == 0 {
		time.Sleep(time.Millisecond)
	}
	do()
	if !slices.Contains(args, "-c") {
		interrupt()
	}
	wg.Wait()
	for shown.events.Wanted() != 0 {
		time.Sleep(time.Millisecond)
	}
	return out, said, err
}

// readCapture reads a capture back.
func readCapture(t *testing.T, stdin string, paths ...string) (all []capture.Record) {
	t.Helper()
	r, err := capture.Open(paths, capture.Options{Stdin: strings.NewReader(stdin)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		var rec capture.Record
		if err := r.Next(&rec); err != nil {
			return all
		}
		rec.Data = bytes.Clone(rec.Data)
		all = append(all, rec)
	}
}

func TestCaptureTellsWhatWasDone(t *testing.T) {
	_, shown, socket := newAPI(t)
	n := 0
	sends := func(k int) func() {
		return func() {
			w := shown.director.NewWorker()
			for range k {
				n++
				var in []*packet.Packet
				for _, to := range []string{"192.0.2.10:80", "192.0.2.10:81"} {
					in = append(in, packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("198.51.100.7:%d", 3000+n), Dst: to, Flags: packet.SYN, Payload: make([]byte, 100)}))
				}
				w.Process(in, time.Duration(n)*time.Millisecond)
				publish(shown.events, w)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "out.pcapng")
	_, said, err := captured(t, shown, socket, sends(3), "-w", file)
	all := readCapture(t, "", file)
	if err != nil || len(all) < 6 || said != fmt.Sprintf("%d packets captured\n0 packets lost: they came faster than they were taken\n", len(all)) {
		t.Fatalf("%v, %s: %d packets", err, said, len(all))
	}
	var told []string
	for _, r := range all {
		told = append(told, fmt.Sprint(r.Interface.Name, " ", r.Interface.Description, " ", r.Direction, " ", r.PacketID != 0, " ", r.Comments))
	}
	text := strings.Join(told, "\n")
	for _, want := range []string{
		"eth0 client side incoming true [decision ", "service tcp-192.0.2.10-80, server 10.2.0.", ", state NONE -> SYN_RECV dropped: no_route: ",
		"eth0  incoming true [dropped: no_service: no virtual service on this port of the VIP: refused]",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	out, _, err := captured(t, shown, socket, sends(3), "-w", "-", "-c", "2", "-s", "60", "dst", "port", "81", "and", "inbound")
	all = readCapture(t, out, "-")
	if err != nil || len(all) != 2 || len(all[0].Data) != 60 || all[0].OrigLen != 154 || !strings.Contains(fmt.Sprint(all[0].Comments), "no_service") {
		t.Errorf("%v, %d packets: %+v", err, len(all), all)
	}
	dir := t.TempDir()
	if _, _, err = captured(t, shown, socket, sends(5000), "-w", filepath.Join(dir, "ring.pcapng"), "-C", "1", "-W", "2", "src", "net", "198.51.100.0/24"); err != nil {
		t.Error(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 2 {
		t.Errorf("a ring of 2 is %v", files)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 1_000_000 || len(readCapture(t, "", f)) == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
	for line, want := range map[string]string{
		"": "-w says where to", "-w x -W 3": "say by -C or -G", "-w - -C 1": "-w - is standard output", "-w x port http": `"http": no port`, "-w x -s 0": "write 1 to 262144", "-w x -C -1": "negative",
	} {
		_, _, err := command(t.Context(), append([]string{"capture", "--control", socket}, strings.Fields(line)...)...)
		if err == nil || exitOf(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
	if _, _, err := command(t.Context(), "capture", "--control", socket, "-w", "/nowhere/x"); err == nil || exitOf(err) != exitFailed {
		t.Errorf("a file that cannot be made: %v", err)
	}
}
