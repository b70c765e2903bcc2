package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pktdirector/dataplane"
)

func TestTheEngineIsToldOfMemoryOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dataplane.New(dataplane.Options{})
		if err := d.SetTunable("drop_packet", "1"); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		asked := 0
		available := func() (int64, error) {
			asked++
			if asked == 3 || asked == 4 {
				return 1023, nil
			}
			return 1024, nil
		}
		ctx, stop := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer stop()
		if err := tellMemory(ctx, d, available, slog.New(slog.NewTextHandler(&text, nil))); err != nil {
			t.Fatal(err)
		}
		if asked != 6 {
			t.Errorf("asked %d times in 5.5 s, want 6", asked)
		}
		if low, over := strings.Count(text.String(), "memory runs low"), strings.Count(text.String(), "not run low any more"); low != 1 || over != 1 {
			t.Errorf("logged %d and %d times:\n%s", low, over, text.String())
		}
	})
}

func TestMemoryThatCannotBeRead(t *testing.T) {
	var text bytes.Buffer
	fails := func() (int64, error) { return 0, errors.New("no such file") }
	if err := tellMemory(t.Context(), dataplane.New(dataplane.Options{}), fails, slog.New(slog.NewTextHandler(&text, nil))); err != nil {
		t.Error(err)
	}
	if !strings.Contains(text.String(), "no such file") {
		t.Errorf("logged %q", text.String())
	}
}
