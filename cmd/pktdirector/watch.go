package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"
)

// interval is the value of --watch: seconds; 0: not given.
type interval time.Duration

// Set implements pflag.Value.
func (i *interval) Set(text string) error {
	d, err := time.ParseDuration(text)
	if seconds, plain := strconv.ParseFloat(text, 64); plain == nil {
		if seconds > 0 && seconds < 1e6 {
			d, err = time.Duration(seconds*float64(time.Second)), nil
		} else {
			d, err = 0, nil
		}
	}
	if err != nil || d < 100*time.Millisecond || d > 24*time.Hour {
		return fmt.Errorf("write seconds from 0.1 to 86400")
	}
	*i = interval(d)
	return nil
}

// String implements pflag.Value.
func (i *interval) String() string {
	if *i == 0 {
		return ""
	}
	return time.Duration(*i).String()
}

// Type implements pflag.Value.
func (i *interval) Type() string { return "seconds" }

// watch calls draw again and again until ctx ends, which is no error. On a terminal
// each picture replaces the one before, cut to the screen; elsewhere they follow
// each other, with the time in front unless bare. What goes wrong after the first
// picture is shown in its place: a director that restarts comes back.
func watch(ctx context.Context, every time.Duration, out io.Writer, title string, bare bool, draw func(io.Writer) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for drawn := false; ; drawn = true {
		rows, cols, terminal := screenSize(out)
		var err error
		if now := time.Now(); terminal && !bare {
			f := frame{rows: rows, cols: cols}
			fmt.Fprintf(&f, "every %v: %s   %s\n\n", every, title, now.Format(time.TimeOnly))
			if err = draw(&f); drawn && err != nil && ctx.Err() == nil {
				fmt.Fprintln(&f, err)
				err = nil
			}
			if err == nil {
				err = f.show(out, !drawn)
			}
		} else {
			if drawn && !bare {
				fmt.Fprintln(out)
			}
			if !bare {
				fmt.Fprintln(out, now.Format(time.RFC3339))
			}
			if err = draw(out); drawn && err != nil && ctx.Err() == nil {
				if w, ok := out.(*output); !ok || w.err == nil {
					fmt.Fprintln(os.Stderr, "pktdirector:", err)
					err = nil
				}
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// frame is one picture of a screen: the first lines that are written, cut at the
// right.
type frame struct {
	rows, cols int
	lines      [][]byte
	rest       []byte // a line without its end
	more       int    // lines that the screen has no room for
}

// Write implements io.Writer.
func (f *frame) Write(b []byte) (int, error) {
	for n := len(b); ; {
		line, after, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			f.rest = append(f.rest, line...)
			return n, nil
		}
		f.add(append(f.rest, line...))
		f.rest, b = nil, after
	}
}

func (f *frame) add(line []byte) {
	if len(f.lines) >= f.rows-1 {
		f.more++
		return
	}
	for n, at := 0, 0; at < len(line); n++ {
		if n == f.cols {
			line = line[:at]
			break
		}
		_, size := utf8.DecodeRune(line[at:])
		at += size
	}
	f.lines = append(f.lines, bytes.Clone(line))
}

// ANSI sequences of a terminal.
const (
	clearScreen  = "\x1b[2J"
	toTopLeft    = "\x1b[H"
	clearLine    = "\x1b[K" // what is right of the cursor
	clearBelow   = "\x1b[J"
	lineEnd      = clearLine + "\n"
	reverseVideo = "\x1b[7m"
	plainVideo   = "\x1b[0m"
)

// show draws the frame in one write, over what is there.
func (f *frame) show(w io.Writer, first bool) error {
	var b bytes.Buffer
	if first {
		b.WriteString(clearScreen)
	}
	b.WriteString(toTopLeft)
	for _, line := range f.lines {
		b.Write(line)
		b.WriteString(lineEnd)
	}
	b.WriteString(clearBelow)
	if f.more > 0 {
		fmt.Fprintf(&b, "%s%d more%s%s\r", reverseVideo, f.more, plainVideo, clearLine)
	}
	_, err := w.Write(b.Bytes())
	return err
}
