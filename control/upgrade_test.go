package control_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
)

// handing is a director that has handed over, until it was asked so often.
type handing struct {
	*live
	left int
}

func (h *handing) Edit(who string, change func(lvs.Ruleset) (lvs.Ruleset, []string, error)) error {
	if h.left--; h.left >= 0 {
		return control.HandedOver()
	}
	return h.live.Edit(who, change)
}

func (h *handing) Ipvsadm(line control.Line) control.Answer {
	if h.left--; h.left >= 0 {
		return control.Answer{Code: 1, Refused: control.HandedOver()}
	}
	return h.live.Ipvsadm(line)
}

func (h *handing) SetStandby(who string, on bool) error {
	if h.left--; h.left >= 0 {
		return control.HandedOver()
	}
	return h.live.SetStandby(who, on)
}

// What comes to a director that has just handed over is asked again, body and all.
func TestClientsAskTheSuccessor(t *testing.T) {
	h := &handing{live: newLive()}
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, h)
	c := control.NewClient(path)
	h.left = 3
	if _, err := c.PutService(t.Context(), "tcp-192.0.2.10-80", control.ServiceSpec{Scheduler: "rr"}); err != nil || len(h.live.Ruleset().Services) != 1 {
		t.Errorf("an edit: %v, %+v", err, h.live.Ruleset())
	}
	h.left = 2
	if a, err := c.Ipvsadm(t.Context(), control.Line{Args: strings.Fields("-A -t 192.0.2.11:80")}); err != nil || a.Code != 0 || len(h.live.Ruleset().Services) != 2 {
		t.Errorf("ipvsadm: %+v, %v", a, err)
	}
	h.left = 2
	if err := c.SetStandby(t.Context(), true); err != nil || !h.live.Standby() {
		t.Errorf("standby: %v", err)
	}
	h.left = 1 << 30
	short, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	if err := c.SetStandby(short, false); err == nil {
		t.Error("one that never comes was asked")
	}
}
