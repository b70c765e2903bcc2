package main

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/testbed"
)

// A lab whose director was upgraded goes down: the successor has the output of the
// director that the lab started, and nobody waits for its end.
func TestALabGoesDownAfterAnUpgrade(t *testing.T) {
	top := topology(t, "nat")
	l := lab(t, top, testbed.AFPacket, nil)
	host := top.With(testbed.Director)[0].Name
	if out, code := exitCode(t, l, host, "upgrade"); code != 0 {
		t.Fatalf("upgrade: exit code %d\n%s", code, out)
	}
	health, err := l.Output(t.Context(), host, "list", "--json")
	var s control.Status
	if err != nil || json.Unmarshal([]byte(health), &s) != nil {
		t.Fatalf("%v\n%s", err, health)
	}
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the lab does not go down")
	}
	syscall.Kill(s.PID, syscall.SIGKILL) // it is no child of the lab
}
