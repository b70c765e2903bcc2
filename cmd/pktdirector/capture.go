package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pktdirector/capture"
	"pktdirector/capture/filter"
	"pktdirector/control"
)

// captureOptions are the flags of capture.
type captureOptions struct {
	file                 string
	size, files, seconds int
	snap                 int
	count                uint64
}

// newCaptureCommand writes what a running director sees and sends into a file.
func newCaptureCommand() *cobra.Command {
	var director remote
	var o captureOptions
	cmd := &cobra.Command{
		Use:   "capture -w FILE [EXPRESSION]",
		Short: "Write each packet as it came and as it left a running director, with what was done",
		Long: `Capture writes a pcapng file that Wireshark, tshark and "pktdirector replay" read: each
packet as it came to the director and as it left, with one packet id, times in
nanoseconds, and comments: the decision's number, service, server, state before and
after, what was rewritten, or why it was dropped. Interfaces have the links' names and
say whether it is the client's side or the server's. Ctrl-C leaves a complete file.

EXPRESSION is one of tcpdump's (docs/trace.md lists what is taken). Of a packet that it
chooses as it came or as it left, both are written.

Packets are written whole unless -s says otherwise: -s 128 keeps headers and little of
what people said. Only who may use the director's API may capture; FILE is made by this
program, with its rights, and only its owner may read it.

Forwarding never waits: packets that come faster than they are taken are left out of the
file and counted, there and in the end.

Exit code 0: ended by Ctrl-C, after -c packets, or with the last file of -W 1. 1: no
director answers, it ended, or a file could not be written. 2: the command line makes no
sense.`,
		Example: `  pktdirector capture -w out.pcapng
  pktdirector capture -w out.pcapng -s 128 'host 198.51.100.7 and tcp port 80'
  pktdirector capture -w ring.pcapng -C 100 -W 10          the latest 10 files of 100 MB
  pktdirector capture -w hour.pcapng -G 3600 -W 24          a file an hour, for a day
  pktdirector capture -w - | wireshark -k -i -
  pktdirector capture -w - -c 20 | tcpdump -nr -`,
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return usageError(err)
			}
			f, err := filter.Parse(strings.Join(args, " "))
			if err != nil {
				return usageError(err)
			}
			client, err := director.client()
			if err != nil {
				return err
			}
			c := &capturing{o: &o, stdout: cmd.OutOrStdout(), expression: f.String()}
			err = c.run(cmd.Context(), client, control.CaptureQuery{Filter: f, Snap: o.snap})
			fmt.Fprintf(cmd.ErrOrStderr(), "%d packets captured\n%d packets lost: they came faster than they were taken\n", c.packets, c.lost)
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "write", "w", "", "the file to write; - is standard output")
	f.IntVarP(&o.size, "size", "C", 0, "end a file before it has more than so many millions of bytes, and begin the next")
	f.IntVarP(&o.seconds, "seconds", "G", 0, "end a file after so many seconds, and begin the next")
	f.IntVarP(&o.files, "files", "W", 0, "with -C or -G, keep so many files: the oldest makes room; with 1, end when it is full")
	f.IntVarP(&o.snap, "snaplen", "s", control.MaxSnap, "bytes of a packet at most")
	f.Uint64VarP(&o.count, "count", "c", 0, "end after so many packets")
	director.addFlags(cmd)
	return cmd
}

// check refuses flags that cannot be.
func (o *captureOptions) check() error {
	switch {
	case o.file == "":
		return errors.New("-w says where to: a file, or - for standard output")
	case o.size < 0 || o.seconds < 0 || o.files < 0:
		return errors.New("-C, -G and -W must not be negative")
	case o.snap < 1 || o.snap > control.MaxSnap:
		return fmt.Errorf("-s %d: write 1 to %d bytes", o.snap, control.MaxSnap)
	case o.files > 0 && o.size == 0 && o.seconds == 0:
		return errors.New("-W says how many files are kept: say by -C or -G when one ends")
	case o.file == "-" && (o.size > 0 || o.seconds > 0):
		return errors.New("-C and -G are about files, and -w - is standard output")
	}
	return nil
}

// packetSink is where a capture goes: capture.Files, or capture.Writer.
type packetSink interface {
	AddInterface(capture.Interface) (int, error)
	Write(*capture.Packet) error
	Lost(iface int, n uint64)
	Flush() error
}

// capturing is a capture at work.
type capturing struct {
	o          *captureOptions
	stdout     io.Writer
	expression string
	to         packetSink
	end        func() error
	ifaces     map[side]int
	packets    uint64
	lost       uint64
	unwritten  uint64 // of lost: for the next packet to tell
	err        error
}

// side is an interface of a capture.
type side struct {
	link, side string
	raw        bool
}

// millionBytes is the unit of -C, as tcpdump's.
const millionBytes = 1_000_000

// open begins the file.
func (c *capturing) open() error {
	o := capture.WriterOptions{Application: "pktdirector " + thisBuild().Version, Snaplen: c.o.snap}
	if c.o.snap == control.MaxSnap {
		o.Snaplen = 0
	}
	if c.o.file == "-" {
		w, err := capture.NewWriter(c.stdout, o)
		if err != nil {
			return err
		}
		c.to, c.end = w, w.Finish
		return nil
	}
	f, err := capture.CreateFiles(c.o.file, o, capture.Limits{
		Bytes: int64(c.o.size) * millionBytes, Age: time.Duration(c.o.seconds) * time.Second, Files: c.o.files,
	})
	if err != nil {
		return err
	}
	c.to, c.end = f, f.Close
	return nil
}

// lastWords is how long an interrupted capture waits for what the director still has.
const lastWords = 3 * time.Second

// run captures until ctx ends, which is no error. What happened before then is written.
func (c *capturing) run(ctx context.Context, client *control.Client, q control.CaptureQuery) error {
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	c.ifaces = map[side]int{}
	undo := context.AfterFunc(ctx, func() {
		select {
		case <-asking.Done():
		case <-time.After(lastWords):
			stop()
		}
	})
	defer undo()
	until := int64(0)
	enough := false
	err := client.Capture(asking, q, func(p *control.CapturedPacket) bool {
		if ctx.Err() != nil && until == 0 {
			until = time.Now().UnixNano()
		}
		if c.to == nil {
			if c.err = c.open(); c.err != nil {
				return false
			}
		}
		c.lost += p.Lost
		c.unwritten += p.Lost
		switch {
		case p.Tick:
			c.err = c.to.Flush()
			enough = until > 0 && p.Time >= until
		case until == 0 || p.Time < until:
			c.err = c.write(p)
			enough = c.o.count > 0 && c.packets >= c.o.count
		}
		return c.err == nil && !enough
	})
	if errors.Is(c.err, capture.ErrFull) {
		c.err, enough = nil, true
	}
	if c.to != nil {
		c.err = errors.Join(c.err, c.finish())
	}
	switch {
	case c.err != nil || enough:
		return c.err
	case ctx.Err() != nil: // the director had no last words
		return nil
	case err == nil:
		return errors.New("the director ended")
	}
	return err
}

// write writes a packet, and its interface where it is new.
func (c *capturing) write(p *control.CapturedPacket) error {
	where := side{p.Link, p.Side, p.Raw}
	at, there := c.ifaces[where]
	if !there {
		i := capture.Interface{Name: p.Link, LinkType: capture.Ethernet, Filter: c.expression}
		if p.Raw {
			i.LinkType = capture.Raw
		}
		if p.Side != "" {
			i.Description = p.Side + " side"
		}
		var err error
		if at, err = c.to.AddInterface(i); err != nil {
			return err
		}
		c.ifaces[where] = at
	}
	one := capture.Packet{
		Time: p.Time, Interface: at, Data: p.Data, OrigLen: p.Length, Comments: p.Comments, Direction: capture.Incoming, PacketID: p.ID, Dropped: c.unwritten,
	}
	if p.Outgoing {
		one.Direction = capture.Outgoing
	}
	if err := c.to.Write(&one); err != nil {
		return err
	}
	c.to.Lost(at, c.unwritten)
	c.unwritten = 0
	c.packets++
	return nil
}

// finish completes the file. What was lost in the end is told by an interface's
// statistics.
func (c *capturing) finish() error {
	if c.unwritten > 0 && len(c.ifaces) > 0 {
		c.to.Lost(0, c.unwritten)
	}
	return c.end()
}
