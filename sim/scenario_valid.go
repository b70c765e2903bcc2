package sim

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"pktdirector/control"
	"pktdirector/dataplane"
)

// longestPause is the longest sleep and the latest time of an event in seconds,
// 31 days: the longest timeout of persistence that ipvsadm takes.
const longestPause = 31 * 24 * 3600

// Bounds of a link's MTU in bytes: the least of IPv4 (RFC 791), the most of a
// packet's length.
const (
	minMTU = 68
	maxMTU = 65535
)

// valid returns what is wrong with a scenario, before anything of it is played.
// Commands are left out: a wrong one is something to record.
func (s *Scenario) valid() error {
	if s.ID == "" {
		return errors.New("id is missing: it names the scenario, and its group before the first hyphen")
	}
	if len(s.Events) == 0 {
		return errors.New("events: there are none: nothing would be played or compared")
	}
	if s.MTU != 0 && (s.MTU < minMTU || s.MTU > maxMTU) {
		return fmt.Errorf("mtu_rs %d: write %d to %d bytes, or leave it out for %d", s.MTU, minMTU, maxMTU, defaultMTU)
	}
	for i, m := range s.Marks {
		if m.Mark == 0 {
			return fmt.Errorf("marks[%d].mark: 0 is no mark: write 1 to 4294967295", i)
		}
	}
	for i, e := range s.Events {
		if e == nil {
			return fmt.Errorf("event %d: null is no event: write {\"op\": ...}", i)
		}
		if err := e.valid(); err != nil {
			return fmt.Errorf("event %d (%s): %w", i, e, err)
		}
	}
	return nil
}

func (e *Event) valid() error {
	if e.T != nil && (*e.T < 0 || *e.T > longestPause) {
		return fmt.Errorf("t %g: write 0 to %d seconds", *e.T, longestPause)
	}
	switch e.Op {
	case "note", "ipvsadm":
		return nil
	case "sysctl":
		if err := dataplane.CheckTunable(strings.TrimPrefix(e.Name, "net.ipv4.vs."), string(e.Value)); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		return nil
	case "sleep":
		if e.Seconds < 0 || e.Seconds > longestPause || math.IsNaN(e.Seconds) {
			return fmt.Errorf("seconds %g: write 0 to %d", e.Seconds, longestPause)
		}
		return nil
	case "proc":
		if !slices.Contains(control.ProcFiles(), e.File) {
			return fmt.Errorf("file %q is none of the kernel's about IPVS: write one of %s", e.File, strings.Join(control.ProcFiles(), ", "))
		}
		return nil
	case "route":
		_, err := routeOf(e.Args)
		return err
	case "pkt":
		if err := validSide(e.From); err != nil {
			return err
		}
		_, err := buildPacket(e, e.Src, e.Dst)
		return err
	case "bulk":
		for i, one := range e.Results {
			if _, err := buildPacket(e, one.Src, one.Dst); err != nil {
				return fmt.Errorf("results[%d]: %w", i, err)
			}
		}
		return nil
	case "frame":
		if err := validSide(e.From); err != nil {
			return err
		}
		_, err := frameOf(e.In)
		return err
	}
	return fmt.Errorf("op %q is not known: write %s", e.Op, strings.Join(ops(), ", "))
}

// ops are the kinds of events, as docs/scenarios.md lists them.
func ops() []string {
	return []string{"ipvsadm", "pkt", "bulk", "frame", "sleep", "sysctl", "route", "proc", "note"}
}

func validSide(from string) error {
	if from != "client" && from != "rs" {
		return fmt.Errorf("from: %q is no side: write client or rs", from)
	}
	return nil
}

// frameOf reads an Ethernet frame in hex.
func frameOf(text string) ([]byte, error) {
	raw, err := hex.DecodeString(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("in: %w: write an Ethernet frame in hex", err)
	case len(raw) < etherHeader:
		return nil, fmt.Errorf("in: %d bytes are no Ethernet frame: its header alone has %d", len(raw), etherHeader)
	case len(raw) > etherHeader+maxMTU:
		return nil, fmt.Errorf("in: %d bytes are no Ethernet frame: it has at most %d", len(raw), etherHeader+maxMTU)
	}
	return raw, nil
}

// etherHeader is the length of an Ethernet header in bytes.
const etherHeader = 14
