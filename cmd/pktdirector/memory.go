package main

import (
	"context"
	"log/slog"
	"time"

	"pktdirector/dataplane"
)

// tellMemory tells the director once a second how many pages of memory the host
// has, until ctx ends, and logs when that falls below amemthresh and when it is
// over while a defence waits for it. Where it cannot be read the automatic
// defences stay off, which is logged once.
func tellMemory(ctx context.Context, d *dataplane.Director, available func() (int64, error), log *slog.Logger) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	low := false
	for {
		pages, err := available()
		if err != nil {
			log.Warn("available memory is not known: drop_entry, drop_packet and secure_tcp do not turn on by themselves", "error", err)
			return nil
		}
		d.SetMemory(pages)
		t := d.Tunables()
		if is := t.Automatic() && pages < int64(t.AMemThresh); is != low {
			low = is
			if low {
				log.Warn("memory runs low: the automatic defences are on", "available_pages", pages, "amemthresh", t.AMemThresh)
			} else {
				log.Info("memory does not run low any more: the automatic defences are off", "available_pages", pages, "amemthresh", t.AMemThresh)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
