package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// hangups are the SIGHUPs that come: to reload, or because the terminal closes.
type hangups struct {
	signals  chan os.Signal // nil where SIGHUP is ignored, as under nohup
	terminal bool           // the program was started on one
}

// listenForHangups takes SIGHUP from now on. One that comes before run is kept.
func listenForHangups() *hangups {
	if signal.Ignored(syscall.SIGHUP) {
		return &hangups{}
	}
	h := &hangups{signals: make(chan os.Signal, 1), terminal: onTerminal()}
	signal.Notify(h.signals, syscall.SIGHUP)
	return h
}

func (h *hangups) close() {
	if h.signals != nil {
		signal.Stop(h.signals)
	}
}

// run reloads on each SIGHUP until ctx ends. A terminal that is gone is not coming
// back, so then it calls stop.
func (h *hangups) run(ctx context.Context, r *reloader, stop func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.signals:
		}
		if h.terminal && !onTerminal() {
			r.log.Info("the terminal is gone")
			stop()
			return nil
		}
		r.run("SIGHUP")
	}
}

// onTerminal reports whether the program has a controlling terminal.
func onTerminal() bool {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	f.Close()
	return true
}
